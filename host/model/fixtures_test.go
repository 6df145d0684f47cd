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

// last computes tokens and returns the last one's row of logits.
func (s *sequence) last(tokens []int32) [][]float32 {
	s.Helper()
	for {
		item := s.item(tokens[:min(len(tokens), 512)])
		item.Logits = 0
		if tokens = tokens[len(item.Tokens):]; len(tokens) == 0 {
			item.Logits = 1
			return run(s, s.model, batch.Batch{Items: []batch.Item{item}})
		}
		run(s, s.model, batch.Batch{Items: []batch.Item{item}})
	}
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

// golden is one file of reference outputs, in float64 on the weights as they are stored.
type golden struct {
	File   string       `json:"file"`                 // what the reference of a real model read
	Stride int          `json:"logits_sample_stride"` // Sample is every so-manieth logit
	Sinks  int          `json:"sinks"`
	Cases  []goldenCase `json:"cases"`
}

// goldenCase is one prompt and what the reference says to it. No file has all of the fields.
type goldenCase struct {
	ID        string         `json:"id"`
	Prompt    string         `json:"prompt"`
	PromptIDs []int32        `json:"prompt_ids"`
	GreedyIDs []int32        `json:"greedy_ids"`
	Logits    []float32      `json:"logits_last_prompt_pos"`
	Sample    []float32      `json:"logits_last_prompt_pos_sample"`
	Last      []float32      `json:"logits_last_step"`
	Top       [][][2]float64 `json:"step_top5"` // of each step: token, logit
	Total     []float64      `json:"step_logsumexp"`
	NearTie   struct {
		F16 *int `json:"f16"` // first step at which keys and values in F16 may turn the choice
	} `json:"first_near_tie"`
}

// distance is how far rows are from the reference's logits: the row behind the prompt, and one
// behind each of its tokens but the last.
func (c *goldenCase) distance(rows [][]float32, stride int) (worst float64) {
	near := func(got float32, want float64) { worst = max(worst, math.Abs(float64(got)-want)) }
	for i, want := range c.Logits {
		near(rows[0][i], float64(want))
	}
	for i, want := range c.Sample {
		near(rows[0][i*stride], float64(want))
	}
	for i, want := range c.Last {
		near(rows[len(rows)-1][i], float64(want))
	}
	for step, list := range c.Top {
		for _, top := range list {
			near(rows[step][int(top[0])], top[1])
		}
	}
	return worst
}

// free are the rows of a model that follows its own choices.
func (c *goldenCase) free(t testing.TB, m *model.Model) [][]float32 {
	s := newSequence(t, m, m.KV().PageSize(), 1, len(c.PromptIDs)+len(c.GreedyIDs))
	rows := s.last(c.PromptIDs)
	for len(rows) < len(c.GreedyIDs) {
		rows = append(rows, s.run(choices(rows[len(rows)-1:]), 1)...)
	}
	return rows
}

// forced are the rows with the reference's own tokens in the lead, behind a prompt.
func (c *goldenCase) forced(t testing.TB, m *model.Model, prompt []int32) [][]float32 {
	s := newSequence(t, m, m.KV().PageSize(), 1, len(prompt)+len(c.GreedyIDs))
	return append(s.last(prompt), s.run(c.GreedyIDs[:len(c.GreedyIDs)-1], 512)...)
}

// choices are the best tokens of rows.
func choices(rows [][]float32) (ids []int32) {
	for _, row := range rows {
		ids = append(ids, argmax(row))
	}
	return ids
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
