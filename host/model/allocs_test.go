package model_test

import (
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
)

// TestRunAllocatesNothing: once a model has seen batches of a size, a step of that size leaves no
// garbage: a chunk of a prompt, 16 sequences with a token each, and both at once.
func TestRunAllocatesNothing(t *testing.T) {
	for _, short := range []bool{false, true} {
		d, err := cpu.Open(cpu.Options{Threads: 2, BF16Activations: short})
		if err != nil {
			t.Fatal(err)
		}
		o := model.Options{}
		if short {
			o.DType = as(gpu.BF16)
		}
		checkAllocations(t, d, o)
		d.Close()
	}
}

func checkAllocations(t *testing.T, d *cpu.Device, o model.Options) {
	const pageSize, pages = 16, 4
	m, err := model.LoadFS(d, embedded.FS(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.NewKV(17*pages, pageSize); err != nil {
		t.Fatal(err)
	}
	item := func(sequence, start, rows, logits int) batch.Item {
		i := batch.Item{Start: start, Tokens: make([]int32, rows), Logits: logits}
		for p := range pages {
			i.Pages = append(i.Pages, kvcache.PageID(sequence*pages+p))
		}
		return i
	}
	chunk := item(16, 0, 40, 1)
	var decode []batch.Item
	for s := range 16 {
		decode = append(decode, item(s, 30, 1, 1))
	}
	for name, items := range map[string][]batch.Item{"prefill": {chunk}, "decode": decode,
		"both": append([]batch.Item{chunk}, decode...)} {
		b := &batch.Batch{Items: items}
		step := func() {
			rows, err := m.Run(b)
			if err != nil || len(rows) != len(items) {
				t.Fatal(len(rows), err)
			}
		}
		step()
		if n := testing.AllocsPerRun(20, step); n != 0 {
			t.Errorf("%s, %s: %v allocations a step", d.Numerics(), name, n)
		}
	}
}
