package model_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
)

// BenchmarkFile times the model that ENGINE_BENCH_MODEL names, a folder or a GGUF file, as others
// do: pp512 is a prompt of 512 tokens, tg64 are 64 tokens one after another, with a number of
// sequences behind it side by side. ENGINE_BENCH_ISA and ENGINE_BENCH_THREADS choose the device.
func BenchmarkFile(b *testing.B) {
	path := os.Getenv("ENGINE_BENCH_MODEL")
	if path == "" {
		b.Skip("ENGINE_BENCH_MODEL names no model")
	}
	threads, _ := strconv.Atoi(os.Getenv("ENGINE_BENCH_THREADS"))
	d := openDevice(b, cpu.Options{ISA: cpu.ISA(os.Getenv("ENGINE_BENCH_ISA")), Threads: threads})
	m, err := model.Load(d, path, model.Options{KV: gpu.F16, MaxRows: 512})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.NewKV(32*40, 16); err != nil {
		b.Fatal(err)
	}
	for name, tokens := range map[string]int{"pp512": 512, "pp2048": 2048} {
		b.Run(name, func(b *testing.B) { benchPrompt(b, m, tokens) })
	}
	for _, n := range []int{1, 8, 16} {
		b.Run("tg64x"+strconv.Itoa(n), func(b *testing.B) { benchTokens(b, m, n) })
	}
}

// benchPrompt computes a prompt in chunks of 512.
func benchPrompt(b *testing.B, m *model.Model, tokens int) {
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32(3 + i*7919%400)
	}
	for b.Loop() {
		newSequence(b, m, 16, 0, tokens).prompt(prompt, 512)
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// prompt computes tokens in chunks, and the logits of the last one.
func (s *sequence) prompt(tokens []int32, chunk int) {
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		item := s.item(tokens[:n])
		item.Logits = 0
		if tokens = tokens[n:]; len(tokens) == 0 {
			item.Logits = 1
		}
		if _, err := s.model.Run(&batch.Batch{Items: []batch.Item{item}}); err != nil {
			s.Fatal(err)
		}
	}
}

// benchTokens computes 64 tokens of so many sequences.
func benchTokens(b *testing.B, m *model.Model, sequences int) {
	items := make([]batch.Item, sequences)
	for i := range items {
		items[i] = batch.Item{Tokens: []int32{5}, Logits: 1, Pages: make([]kvcache.PageID, 4)}
		for p := range items[i].Pages {
			items[i].Pages[p] = kvcache.PageID(4*i + p)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for position := range 64 {
			for i := range items {
				items[i].Start = position
			}
			if _, err := m.Run(&batch.Batch{Items: items}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(64*sequences*b.N)/b.Elapsed().Seconds(), "tokens/s")
}
