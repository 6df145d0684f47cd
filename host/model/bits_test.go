package model_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
)

// longPrompt crosses pages and blocks of attention.
const longPrompt = 450

// prompts are the golden prompts of a model and a long one.
func prompts(t testing.TB, r reference) [][]int32 {
	t.Helper()
	var out [][]int32
	long := []int32{}
	for _, c := range r.read(t).Cases {
		out = append(out, c.PromptIDs)
		long = append(append(long, c.PromptIDs...), c.GreedyIDs...)
	}
	for len(long) < longPrompt {
		long = append(long, long...)
	}
	return append(out, long[:longPrompt])
}

// TestSameBits holds the promise of the package: the logits of a prompt do not depend on how it was
// cut, with whom it shared batches, where its pages lie or how keys and values came into them.
func TestSameBits(t *testing.T) {
	for _, g := range goldens {
		for _, pageSize := range []int{16, 7} {
			t.Run(fmt.Sprintf("%s pages of %d", g.model, pageSize), func(t *testing.T) {
				m := loadModel(t, openDevice(t, cpu.Options{}), g.model, pageSize)
				for _, prompt := range prompts(t, g) {
					checkSameBits(t, m, prompt, pageSize)
				}
			})
		}
	}
}

func checkSameBits(t *testing.T, m *model.Model, prompt []int32, pageSize int) {
	fresh := func(first int) *sequence { return newSequence(t, m, pageSize, first, len(prompt)) }
	want := fresh(0).run(prompt, len(prompt))
	sameBits(t, "chunks of 7", fresh(1).run(prompt, 7), want)
	sameBits(t, "chunks of 100", fresh(2).run(prompt, 100), want)
	start := min(40, len(prompt))
	sameBits(t, "token by token", fresh(0).run(prompt[:start], 1), want[:start])
	if m.Config().UniformWindow {
		sameBits(t, "without what slid out", runSliding(t, m, prompt, pageSize), want)
	}
	sameBits(t, "with 8 others", runAmongOthers(t, m, prompt, pageSize), want)
	for _, cut := range []int{len(prompt) / 3, len(prompt) * 5 / 7} {
		sameBits(t, "after a fork", runFork(t, m, prompt, pageSize, cut), want[cut:])
		sameBits(t, "after a transfer", runTransfer(t, m, prompt, pageSize, cut), want[cut:])
	}
}

// runSliding computes the prompt in chunks of 20; pages that slid out are overwritten and gone.
func runSliding(t *testing.T, m *model.Model, prompt []int32, pageSize int) [][]float32 {
	about, s := m.Config(), newSequence(t, m, pageSize, 0, len(prompt))
	bad := bytes.Repeat([]byte{0xff}, pageSize*m.KV().TokenBytes()) // NaNs
	var rows [][]float32
	for len(prompt) > 0 {
		first := (about.Sinks + pageSize - 1) / pageSize
		for k := first; (k+1)*pageSize <= s.done-about.Window+1; k++ {
			for layer := 0; s.pages[k] >= 0 && layer < about.Layers; layer++ {
				r := kvcache.SlotRange{Page: s.pages[k], Count: pageSize}
				if err := m.KV().WritePage(layer, r, bad); err != nil {
					t.Fatal(err)
				}
			}
			s.pages[k] = kvcache.None
		}
		n := min(20, len(prompt))
		rows = append(rows, run(t, m, batch.Batch{Items: []batch.Item{s.item(prompt[:n])}})...)
		prompt = prompt[n:]
	}
	return rows
}

// runAmongOthers computes the prompt in random pieces, each in a batch with eight other sequences,
// some before it and some after it.
func runAmongOthers(t *testing.T, m *model.Model, prompt []int32, pageSize int) [][]float32 {
	random := rand.New(rand.NewPCG(uint64(len(prompt)), 7))
	mine := newSequence(t, m, pageSize, 0, len(prompt))
	var rows [][]float32
	for len(prompt) > 0 {
		n := min(1+random.IntN(60), len(prompt))
		place := random.IntN(9)
		var b batch.Batch
		before := 0
		for other := range 9 {
			if other == place {
				before = countLogits(b)
				b.Items = append(b.Items, mine.item(prompt[:n]))
				continue
			}
			tokens := make([]int32, 1+random.IntN(50))
			for i := range tokens {
				tokens[i] = int32(random.IntN(m.Config().Vocabulary))
			}
			first := 1 + (3*longPrompt+600*other)/pageSize // beyond mine, apart from each other
			s := newSequence(t, m, pageSize, first, len(tokens))
			item := s.item(tokens)
			item.Logits = random.IntN(len(tokens) + 1)
			b.Items = append(b.Items, item)
		}
		rows = append(rows, run(t, m, b)[before:][:n]...)
		prompt = prompt[n:]
	}
	return rows
}

func countLogits(b batch.Batch) int {
	n := 0
	for i := range b.Items {
		n += b.Items[i].Logits
	}
	return n
}

// runFork computes a prefix in one sequence; another shares its full pages, gets a copy of the tail
// page, and goes on.
func runFork(t *testing.T, m *model.Model, prompt []int32, pageSize, cut int) [][]float32 {
	parent := newSequence(t, m, pageSize, 0, len(prompt))
	parent.run(prompt[:cut], 64)
	child := newSequence(t, m, pageSize, 1, len(prompt))
	full := cut / pageSize
	copy(child.pages[:full], parent.pages)
	child.done = cut
	b := batch.Batch{Items: []batch.Item{child.item(prompt[cut:])}}
	if tail := cut % pageSize; tail > 0 {
		b.Copies = []batch.Copy{{From: parent.pages[full], To: child.pages[full], Tokens: tail}}
	}
	return run(t, m, b)
}

// runTransfer computes a prefix on one model, sends its pages layer by layer to another one's pool,
// and goes on there.
func runTransfer(t *testing.T, m *model.Model, prompt []int32, pageSize, cut int) [][]float32 {
	to, err := m.Share()
	if err != nil {
		t.Fatal(err)
	}
	target, err := to.NewKV(8192/pageSize, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	sender := newSequence(t, m, pageSize, 0, len(prompt))
	receiver := newSequence(t, to, pageSize, 2, len(prompt))
	source := m.KV()
	sender.run(prompt[:cut], 50)
	for layer := range source.Layers() {
		for at := 0; at < cut; at += pageSize {
			for first, count := range halves(min(pageSize, cut-at)) {
				data := make([]byte, count*source.TokenBytes())
				r := kvcache.SlotRange{Page: sender.pages[at/pageSize], First: first, Count: count}
				if err := source.ReadPage(layer, r, data); err != nil {
					t.Fatal(err)
				}
				r.Page = receiver.pages[at/pageSize]
				if err := target.WritePage(layer, r, data); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	receiver.done = cut
	return receiver.run(prompt[cut:], 512)
}

// halves cuts n slots into two ranges.
func halves(n int) func(yield func(first, count int) bool) {
	return func(yield func(first, count int) bool) {
		_ = yield(0, n/2) && yield(n/2, n-n/2)
	}
}

// TestDevicesGiveSameBits: plain Go, AVX2 and the reference, whatever the threads.
func TestDevicesGiveSameBits(t *testing.T) {
	for i, g := range goldens {
		t.Run(g.model, func(t *testing.T) {
			all := prompts(t, g)
			prompt := all[0]
			if i == 0 {
				prompt = all[len(all)-1]
			} else if len(prompt) < 2 {
				prompt = all[3]
			}
			checkSameDevices(t, g.model, prompt)
		})
	}
}

func checkSameDevices(t *testing.T, name string, prompt []int32) {
	const pageSize = 16
	twin := loadModel(t, cpu.NewTwin(cpu.NumericsInt8), name, pageSize)
	want := newSequence(t, twin, pageSize, 0, len(prompt)).run(prompt, 512)
	for _, o := range []cpu.Options{{ISA: cpu.Go, Threads: 2}, {Threads: 1}, {Threads: 3},
		{ISA: cpu.AVX2, Threads: 2}, {ISA: cpu.AVXVNNI, Threads: 2}} {
		if _, err := cpu.Check(o); err != nil {
			t.Log(err)
			continue
		}
		m := loadModel(t, openDevice(t, o), name, pageSize)
		got := newSequence(t, m, pageSize, 0, len(prompt)).run(prompt, 512)
		sameBits(t, fmt.Sprintf("%+v", o), got, want)
	}
}
