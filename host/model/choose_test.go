package model_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/fake"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/model"
)

// watcher is a chooser that keeps what it was shown.
type watcher struct {
	looks       int
	temperature float32
	refuses     bool
	seen        *batch.Best
}

func (w *watcher) Looks() (int, float32) { return w.looks, w.temperature }

func (w *watcher) Choose(b batch.Best) bool {
	b.IDs, b.Logits = slices.Clone(b.IDs), slices.Clone(b.Logits)
	w.seen = &b
	return !w.refuses
}

func fakeGPU(t *testing.T) *cuda.Device {
	t.Helper()
	driver, _ := fake.New(fake.Options{})
	device, err := cuda.Open(driver, cuda.Options{Type: gpu.BF16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return device
}

// TestChoosers: what choosers are shown is the best of the rows that the same pass gives without
// them, in more blocks of the head than one, whoever looks at how many. Rows come for those who
// chose nothing, and for them alone.
func TestChoosers(t *testing.T) {
	const sequences, pageSize = 53, 16
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := loadModel(t, fakeGPU(t), "random/qwen3", pageSize)
	for _, looks := range [][]int{{1}, {1, 0}, {1, 0, 5, 256}, {0}} {
		var plain, watched batch.Batch
		var watchers []*watcher
		for i := range sequences {
			tokens := []int32{int32(r.IntN(64)), int32(i)}
			item := batch.Item{Tokens: tokens, Pages: newSequence(t, m, pageSize, i, 16).pages,
				Logits: 1}
			plain.Items = append(plain.Items, item)
			w := &watcher{looks: looks[i%len(looks)], temperature: 0.5 + r.Float32(),
				refuses: r.IntN(3) == 0}
			watchers = append(watchers, w)
			if i%5 != 3 {
				item.Chooser = w
			}
			watched.Items = append(watched.Items, item)
		}
		want := run(t, m, plain)
		got, err := m.Run(&watched)
		if err != nil || len(got) != sequences {
			t.Fatalf("%d rows, %v", len(got), err)
		}
		for i, w := range watchers {
			asked := watched.Items[i].Chooser != nil && w.looks > 0
			if (w.seen != nil) != asked || (got[i] == nil) != (asked && !w.refuses) {
				t.Fatalf("looks %v: row %d: %+v saw %v and the row has %d logits", looks, i, w,
					w.seen, len(got[i]))
			}
			if got[i] != nil {
				sameBits(t, "a row beside choosers", got[i:i+1], want[i:i+1])
			}
			if asked {
				w.check(t, want[i], slices.Max(looks) == 1)
			}
		}
	}
}

// check compares what was seen with a sort of the row.
func (w *watcher) check(t *testing.T, row []float32, alone bool) {
	t.Helper()
	ids := make([]int32, len(row))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	b := w.seen
	if len(b.IDs) < min(w.looks, len(row)) || !slices.Equal(b.IDs, ids[:len(b.IDs)]) ||
		b.Vocabulary != len(row) || alone != (b.Logits == nil) {
		t.Fatalf("%+v saw %+v, the best are %v", w, b, ids[:w.looks])
	}
	if alone {
		return
	}
	temperature := float64(w.temperature)
	if w.looks == 1 {
		temperature = 1
	}
	sum := 0.0
	for i, id := range ids {
		sum += math.Exp(float64(row[id]-row[ids[0]]) / temperature)
		if i < len(b.IDs) && b.Logits[i] != row[id] {
			t.Fatalf("logit %d is %v, want %v", i, b.Logits[i], row[id])
		}
	}
	if !(math.Abs(b.Sum/sum-1) <= b.SumError) || b.SumError > 1e-3 {
		t.Fatalf("all weigh %v to within %v, want %v", b.Sum, b.SumError, sum)
	}
}

// TestChoosersAreNotAsked: where the device leaves the choice to the host, and where the host has
// still to bound the logits, all rows come.
func TestChoosersAreNotAsked(t *testing.T) {
	for name, m := range map[string]*model.Model{
		"on the processor": loadModel(t, openDevice(t, cpu.Options{}), "random/qwen3", 16),
		"capped":           loadModel(t, fakeGPU(t), "random/gemma2", 16),
	} {
		w := &watcher{looks: 1}
		item := newSequence(t, m, 16, 0, 16).item([]int32{5})
		item.Chooser = w
		if rows := run(t, m, batch.Batch{Items: []batch.Item{item}}); w.seen != nil ||
			len(rows[0]) != m.Config().Vocabulary {
			t.Errorf("%s: %d logits, and %+v was shown", name, len(rows[0]), w.seen)
		}
	}
}

// TestGreedyStepsCopyTokens: of a step whose sequences all take the likeliest token the host copies
// the tokens, in one piece; of one with candidates those, and no row.
func TestGreedyStepsCopyTokens(t *testing.T) {
	driver, state := fake.New(fake.Options{OutRate: 1e9})
	device, err := cuda.Open(driver, cuda.Options{Type: gpu.BF16})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	const sequences = 7
	m := loadModel(t, device, "random/qwen3", 16)
	width := m.Config().Vocabulary
	for looks, most := range map[int]int{
		0: 4 * width * sequences, 1: 4 * sequences, 3: 4 * (2*3 + 1) * sequences,
	} {
		var b batch.Batch
		for i := range sequences {
			item := newSequence(t, m, 16, i, 16).item([]int32{int32(i)})
			item.Chooser = &watcher{looks: looks, temperature: 1}
			b.Items = append(b.Items, item)
		}
		before := len(state.Timeline())
		run(t, m, b)
		copies, bytes := 0, 0.0
		for _, span := range state.Timeline()[before:] {
			if span.What == "copy out" {
				copies++
				bytes += (span.End - span.Begin - 1e-6) * 1e9 // a microsecond, and a byte a ns
			}
		}
		if copies != 1 || int(math.Round(bytes)) != most {
			t.Errorf("looks at %d: %d copies of %.0f bytes, want one of %d", looks, copies, bytes,
				most)
		}
	}
}
