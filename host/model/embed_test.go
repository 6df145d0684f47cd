package model_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// rowsOf are the vectors that the first layer gets for tokens, from the model's own table.
func rowsOf(t *testing.T, name string, about model.Config, tokens []int32) []float32 {
	t.Helper()
	folder := modelDir(t, name)
	if _, err := os.Stat(filepath.Join(folder, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	table, ok := w.Tensor("model.embed_tokens.weight")
	if !ok {
		t.Fatal("no table of embeddings")
	}
	scale := float32(1)
	if strings.HasPrefix(about.Architecture, "Gemma") {
		scale = float32(math.Sqrt(float64(about.Hidden)))
	}
	all, err := table.Floats()
	if err != nil {
		t.Fatal(err)
	}
	var rows []float32
	for _, token := range tokens {
		for _, x := range all[int(token)*about.Hidden:][:about.Hidden] {
			rows = append(rows, x*scale)
		}
	}
	return rows
}

// asVectors replaces tokens [from, to) of an item by their vectors.
func asVectors(item batch.Item, width, from, to int, all []float32) batch.Item {
	first := item.Start
	item.Tokens = slices.Clone(item.Tokens)
	for i := max(from, first); i < min(to, first+len(item.Tokens)); i++ {
		item.Tokens[i-first] = -7
	}
	item.Embeds = append(item.Embeds, batch.Embedding{Start: from, Rows: to - from,
		Values: all[from*width : to*width]})
	return item
}

// TestVectorsOfTheModelsOwnTable: a prompt given as the vectors of its tokens, whole or in parts,
// beside other prompts or alone, gives the very logits that its tokens give.
func TestVectorsOfTheModelsOwnTable(t *testing.T) {
	for _, name := range []string{"stories260k/hf-f32", "stories260k/hf-f16", "w256-bf16",
		"random/gemma3", "random/mixtral"} {
		t.Run(name, func(t *testing.T) {
			m := loadModel(t, openDevice(t, cpu.Options{}), name, 16)
			width := m.Config().Hidden
			tokens := make([]int32, 60)
			for i := range tokens {
				tokens[i] = int32(3 + (i*37)%(m.Config().Vocabulary-3))
			}
			all := rowsOf(t, name, m.Config(), tokens)
			fresh := func(first int) *sequence { return newSequence(t, m, 16, first, 60) }
			want := fresh(0).run(tokens, 60)

			whole := asVectors(fresh(1).item(tokens), width, 0, 60, all)
			sameBits(t, "all vectors", run(t, m, batch.Batch{Items: []batch.Item{whole}}), want)

			parts := asVectors(fresh(2).item(tokens), width, 0, 9, all)
			parts = asVectors(parts, width, 9, 10, all)
			parts = asVectors(parts, width, 30, 47, all)
			others := batch.Batch{Items: []batch.Item{
				newSequence(t, m, 16, 20, 60).item(tokens[:11]), parts,
				newSequence(t, m, 16, 21, 60).item(tokens[:5])}}
			got := run(t, m, others)
			sameBits(t, "parts among others", got[11:71], want)
			sameBits(t, "tokens beside vectors", got[:11], want[:11])
			sameBits(t, "tokens behind vectors", got[71:], want[:5])

			s := fresh(3)
			first := s.item(tokens[:20])
			got = run(t, m, batch.Batch{Items: []batch.Item{first}})
			second := asVectors(s.item(tokens[20:]), width, 20, 44, all)
			got = append(got, run(t, m, batch.Batch{Items: []batch.Item{second}})...)
			sameBits(t, "after a chunk of tokens", got, want)
		})
	}
}

func TestRunRefusesVectors(t *testing.T) {
	m := loadModel(t, openDevice(t, cpu.Options{}), "random/llama3", 16)
	width := m.Config().Hidden
	item := func(start, rows, numbers int) batch.Item {
		return batch.Item{Tokens: []int32{1, -1, -1, 4}, Start: 8, Pages: []kvcache.PageID{0},
			Embeds: []batch.Embedding{{Start: start, Rows: rows, Values: make([]float32, numbers)}}}
	}
	twice := item(9, 2, 2*width)
	twice.Embeds = append(twice.Embeds, twice.Embeds[0])
	for want, i := range map[string]batch.Item{
		"vectors for positions [7, 9) among [8, 12)":   item(7, 2, 2*width),
		"vectors for positions [11, 13) among [8, 12)": item(11, 2, 2*width),
		"vectors for positions [9, 9) among":           item(9, 0, 0),
		"vectors for positions [9, 11) among [11, 12)": twice,
		"2 vectors in":             item(9, 2, 2*width-1),
		"token -1 in a vocabulary": item(10, 2, 2*width),
	} {
		_, err := m.Run(&batch.Batch{Items: []batch.Item{i}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := m.Run(&batch.Batch{Items: []batch.Item{item(9, 2, 2*width)}}); err != nil {
		t.Error(err)
	}
}
