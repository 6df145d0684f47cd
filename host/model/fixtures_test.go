package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
)

// sharedDir is the folder of test data that is not part of the repository.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return filepath.Join(dir, "data")
}

// openDevice opens a CPU device for the length of a test.
func openDevice(t testing.TB, o cpu.Options) gpu.Device {
	t.Helper()
	d, err := cpu.Open(o)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// modelDir is the folder of a model: those named random/... are in the repository, written by
// testdata/random_models.py, the rest is shared.
func modelDir(t testing.TB, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "random/") {
		return filepath.Join("testdata", filepath.FromSlash(name))
	}
	return filepath.Join(sharedDir(t), "models", filepath.FromSlash(name))
}

// loadModel loads a model with a pool of 8192 tokens, and with the sinks that its golden file asks
// for.
func loadModel(t testing.TB, device gpu.Device, name string, pageSize int) *model.Model {
	t.Helper()
	var o model.Options
	if dir := modelDir(t, name); strings.HasPrefix(name, "random/") {
		o.Sinks = readGolden(t, filepath.Join(dir, "golden.json")).Sinks
	}
	m, err := model.Load(device, modelDir(t, name), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.NewKV(8192/pageSize, pageSize); err != nil {
		t.Fatal(err)
	}
	return m
}

// sequence is one conversation on a model's pool, with pages of its own.
type sequence struct {
	testing.TB
	model *model.Model
	pages []kvcache.PageID
	done  int // tokens computed
}

// newSequence takes pages for n tokens, every third page from first on: they need not be
// neighbours.
func newSequence(t testing.TB, m *model.Model, pageSize, first, n int) *sequence {
	s := &sequence{TB: t, model: m}
	for i := range (n + pageSize - 1) / pageSize {
		s.pages = append(s.pages, kvcache.PageID(first+3*i))
	}
	return s
}

// item is the next tokens as a batch item; all its rows give logits.
func (s *sequence) item(tokens []int32) batch.Item {
	i := batch.Item{Tokens: tokens, Start: s.done, Pages: s.pages, Logits: len(tokens)}
	s.done += len(tokens)
	return i
}

// run computes tokens in chunks and returns all rows of logits.
func (s *sequence) run(tokens []int32, chunk int) [][]float32 {
	s.Helper()
	var rows [][]float32
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		b := batch.Batch{Items: []batch.Item{s.item(tokens[:n])}}
		rows = append(rows, run(s, s.model, b)...)
		tokens = tokens[n:]
	}
	return rows
}

// run runs a batch and copies the rows.
func run(t testing.TB, m *model.Model, b batch.Batch) [][]float32 {
	t.Helper()
	rows, err := m.Run(&b)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for _, r := range rows {
		out = append(out, append([]float32(nil), r...))
	}
	return out
}

// sameBits compares rows bit for bit.
func sameBits(t testing.TB, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for r := range want {
		for i, x := range want[r] {
			if math.Float32bits(got[r][i]) != math.Float32bits(x) {
				t.Fatalf("%s: logit %d of row %d of %d is %v, want %v",
					what, i, r, len(want), got[r][i], x)
			}
		}
	}
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// golden is one file of reference outputs.
type golden struct {
	Sinks int `json:"sinks"`
	Cases []struct {
		Prompt    string    `json:"prompt"`
		PromptIDs []int32   `json:"prompt_ids"`
		GreedyIDs []int32   `json:"greedy_ids"`
		Logits    []float32 `json:"logits_last_prompt_pos"`
		Last      []float32 `json:"logits_last_step"` // in some files
	} `json:"cases"`
}

func readGolden(t testing.TB, path string) golden {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}
