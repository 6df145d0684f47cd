package model_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
)

// counter notes the products a device computes.
type counter struct {
	gpu.Device
	outputs []int
	rows    []int
}

func (c *counter) MatMul(a gpu.MatMulArgs) error {
	c.outputs, c.rows = append(c.outputs, a.W.Rows()), append(c.rows, a.Rows)
	return c.Device.MatMul(a)
}

// TestNoHeadWithoutLogits: a batch that only fills pages stops after the last layer's keys and
// values; rows without logits drop out before the last layer's feed-forward part.
func TestNoHeadWithoutLogits(t *testing.T) {
	c := &counter{Device: openDevice(t, cpu.Options{Threads: 1})}
	m := loadModel(t, c, "llama-untied", 16)
	layers := m.Config().Layers
	s := newSequence(t, m, 16, 0, 30)
	var done []int
	item := s.item(make([]int32, 20))
	item.Logits = 0
	rows, err := m.Run(&batch.Batch{Items: []batch.Item{item},
		LayerDone: func(layer int) { done = append(done, layer) }})
	if err != nil || len(rows) != 0 {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	if len(done) != layers || !slices.IsSorted(done) || done[0] != 0 {
		t.Errorf("layers done: %v", done)
	}
	if len(c.outputs) != 4*layers-3 || slices.Contains(c.outputs, m.Config().Vocabulary) {
		t.Errorf("products with outputs %v for %d layers", c.outputs, layers)
	}
	c.rows = nil
	item = s.item(make([]int32, 10))
	item.Logits = 2
	if rows := run(t, m, batch.Batch{Items: []batch.Item{item}}); len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
	if last := c.rows[len(c.rows)-5:]; !slices.Equal(last, []int{10, 2, 2, 2, 2}) {
		t.Errorf("rows of the last products: %v", last)
	}
}

func TestRunRefuses(t *testing.T) {
	m := loadModel(t, openDevice(t, cpu.Options{}), "stories260k/hf-f32", 16)
	pages := make([]kvcache.PageID, 40)
	item := func(n int, id int32, start int, pages []kvcache.PageID) batch.Batch {
		return batch.Batch{Items: []batch.Item{
			{Tokens: slices.Repeat([]int32{id}, n), Start: start, Pages: pages}}}
	}
	tooMany := item(1, 1, 0, pages)
	tooMany.Items[0].Logits = 2
	for want, b := range map[string]batch.Batch{
		"item 0: no tokens":               item(0, 0, 0, pages),
		"token 512 in a vocabulary":       item(1, 512, 0, pages),
		"token -1 in a vocabulary":        item(1, -1, 0, pages),
		"[510, 513) in a context of 512":  item(3, 1, 510, pages),
		"[-1, 0) in a context":            item(1, 1, -1, pages),
		"[0, 17) on 1 pages of 16":        item(17, 1, 0, pages[:1]),
		"page 512 in a pool of 512":       item(1, 1, 0, []kvcache.PageID{512}),
		"page -1 in a pool of 512":        item(1, 1, 40, []kvcache.PageID{-1, 0, 0}),
		"logits of 2 of 1 rows":           tooMany,
		"513 rows, the budget is 512":     item(513, 1, 0, pages),
		"copy 17 tokens of page 0":        {Copies: []batch.Copy{{To: 1, Tokens: 17}}},
		"of page -1 to page 1 in a pool":  {Copies: []batch.Copy{{From: -1, To: 1}}},
		"copy 1 tokens of page 0 to page": {Copies: []batch.Copy{{To: 512, Tokens: 1}}},
	} {
		if _, err := m.Run(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
	if rows, err := m.Run(&batch.Batch{}); err != nil || len(rows) != 0 {
		t.Errorf("an empty batch gives %d rows, %v", len(rows), err)
	}
	store := m.KV()
	token := make([]byte, store.TokenBytes())
	if store.ReadPage(9, kvcache.SlotRange{Count: 1}, token) == nil ||
		store.WritePage(0, kvcache.SlotRange{Page: 600, Count: 1}, token) == nil {
		t.Error("a page outside the pool was accepted")
	}
	if _, err := m.NewKV(0, 16); err == nil {
		t.Error("a pool without pages was accepted")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(&batch.Batch{}); err == nil {
		t.Error("a closed model ran")
	}
}

// TestSharedWeightsTakeTurns: two engines on one device get their own bits.
func TestSharedWeightsTakeTurns(t *testing.T) {
	m := loadModel(t, openDevice(t, cpu.Options{Threads: 2}), "stories260k/hf-f32", 16)
	prompt := prompts(t, goldens[0])[1]
	want := newSequence(t, m, 16, 0, len(prompt)).run(prompt, 100)
	var work sync.WaitGroup
	for range 2 {
		other, err := m.Share()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.NewKV(16, 16); err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			for range 20 {
				s := newSequence(t, other, 16, 0, len(prompt))
				rows, err := other.Run(&batch.Batch{Items: []batch.Item{s.item(prompt)}})
				if err != nil {
					t.Error(err)
					return
				}
				sameBits(t, "beside another engine", rows, want)
			}
		})
	}
	work.Wait()
}

// BenchmarkTokens measures the smallest model: what a step costs apart from its arithmetic.
func BenchmarkTokens(b *testing.B) {
	m := loadModel(b, openDevice(b, cpu.Options{}), "stories260k/hf-f32", 16)
	b.Run("decode", func(b *testing.B) {
		s := newSequence(b, m, 16, 0, 512)
		items := []batch.Item{s.item([]int32{1})}
		b.ReportAllocs()
		for b.Loop() {
			items[0].Start = (items[0].Start + 1) % 200
			if _, err := m.Run(&batch.Batch{Items: items}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("prefill of 256", func(b *testing.B) {
		s := newSequence(b, m, 16, 0, 512)
		items := []batch.Item{s.item(slices.Repeat([]int32{403}, 256))}
		items[0].Logits = 1
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Run(&batch.Batch{Items: items}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
