package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// golden is a file of reference outputs.
type golden struct {
	Cases []goldenCase `json:"cases"`
}

type goldenCase struct {
	Prompt    string  `json:"prompt"`
	PromptIDs []int32 `json:"prompt_ids"`
	GreedyIDs []int32 `json:"greedy_ids"`
	Text      string  `json:"text"`
}

// goldenModel is a model with its reference. The folder "" is the embedded model. With kv it is the
// type of keys and values, in place of the default, for which the reference is too exact. The
// backend's lines are all instances', those of the prefill come on top in the prefill instance.
type goldenModel struct{ name, folder, file, kv, backend, prefill string }

// embeddedGolden is there in every clone.
func embeddedGolden() goldenModel {
	model := filepath.Join("..", "..", "host", "model", "embedded")
	return goldenModel{name: "embedded", file: filepath.Join(model, "testdata", "golden.json")}
}

// sharedGoldens are the models of the shared data.
func sharedGoldens(t *testing.T) []goldenModel {
	data := filepath.Join(sharedDir(t), "data")
	var all []goldenModel
	for _, m := range []struct{ model, file string }{
		{"stories260k/hf-f32", "stories260K_hf-f32.json"},
		{"stories260k/hf-f16", "stories260K_hf-f16.json"},
		{"stories260k/hf-bf16", "stories260K_hf-bf16.json"},
		{"stories260k/hf-f32-sharded", "stories260K_hf-f32.json"},
		{"llama-untied", "variants_llama-untied.json"},
		{"w256-bf16", "inflated_w256-bf16.json"},
		{"llama3-rope", "variants_llama3-rope.json"},
		{"mistral-swa32", "variants_mistral-swa32.json"},
		{"qwen2-bias", "variants_qwen2-bias.json"},
		{"gemma1", "variants_gemma1.json"},
		{"stories-qwen3", "stories-qwen3.json"},
		{"stories-gemma3", "stories-gemma3.json"},
	} {
		all = append(all, goldenModel{name: m.model, folder: filepath.Join(data, "models", m.model),
			file: filepath.Join(data, "golden", m.file)})
	}
	if raced {
		return []goldenModel{all[0], all[len(all)-1]}
	}
	return all
}

// cases reads the reference.
func (g goldenModel) cases(t *testing.T) []goldenCase {
	t.Helper()
	var all golden
	readJSON(t, g.file, &all)
	if len(all.Cases) == 0 {
		t.Fatalf("%s has no cases", g.file)
	}
	return all.Cases
}

// positionBytes is the size of one position's keys and values, by the model's own config.json.
func (g goldenModel) positionBytes(t *testing.T) int64 {
	t.Helper()
	folder := g.folder
	if folder == "" {
		folder = filepath.Join("..", "..", "host", "model", "embedded", "checkpoint")
	}
	var c struct {
		Layers  int64 `json:"num_hidden_layers"`
		Hidden  int64 `json:"hidden_size"`
		Heads   int64 `json:"num_attention_heads"`
		KVHeads int64 `json:"num_key_value_heads"`
		HeadDim int64 `json:"head_dim"`
	}
	readJSON(t, filepath.Join(folder, "config.json"), &c)
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	const keyAndValue, float16Bytes = 2, 2 // f16 is the default of kv_cache.dtype.
	kv := cmp.Or(g.kv, os.Getenv("ENGINE__KV_CACHE__DTYPE"))
	if numbers := c.Layers * keyAndValue * c.KVHeads * c.HeadDim; kv == "q8_0" {
		return numbers / 32 * 34
	} else {
		return numbers * float16Bytes
	}
}

// sentPositions is how many of the first end positions are sent: all, or, where every layer has
// a window, those on pages that position end still sees.
func (g goldenModel) sentPositions(t *testing.T, end int64) int64 {
	t.Helper()
	window := g.window(t)
	if window == 0 {
		return end
	}
	const page = 16 // The default.
	return end - max(0, end-window+1)/page*page
}

// window is the one of all layers, 0 if there is none.
func (g goldenModel) window(t *testing.T) int64 {
	t.Helper()
	var c struct {
		Type   string `json:"model_type"`
		Window int64  `json:"sliding_window"`
	}
	if g.folder != "" {
		readJSON(t, filepath.Join(g.folder, "config.json"), &c)
	}
	if c.Type != "mistral" {
		return 0
	}
	return c.Window
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestRunGivesTheGoldenTokensOfTheEmbeddedModel(t *testing.T) {
	runGolden(t, embeddedGolden())
}

func TestRunGivesTheGoldenTokens(t *testing.T) {
	for _, g := range sharedGoldens(t) {
		t.Run(g.name, func(t *testing.T) { runGolden(t, g) })
	}
}

// runGolden continues every prompt of a reference by `engine run`: the very ids must come out, over
// a transfer of exactly the positions that are not computed on the decode side.
func runGolden(t *testing.T, g goldenModel) {
	t.Setenv("HOME", t.TempDir())
	for _, c := range g.cases(t) {
		args := []string{"run", "--json", "--temperature", "0", "--ignore-eos", "--max-tokens",
			"40",
			"--token-ids", joinIDs(c.PromptIDs)}
		if g.folder != "" {
			args = append(args, "--model", g.folder)
		}
		got := invoke(t, "", args...)
		if got.code != 0 {
			t.Fatalf("%q: exit %d: %s", c.Prompt, got.code, got.err)
		}
		d := oneDocument(t, got.out)
		if !slices.Equal(d.TokenIDs, c.GreedyIDs) || !slices.Equal(d.PromptTokenIDs, c.PromptIDs) {
			t.Errorf("%q: tokens %v, want %v", c.Prompt, d.TokenIDs, c.GreedyIDs)
		}
		n := int64(len(c.PromptIDs))
		if want := g.sentPositions(t, n-1) * g.positionBytes(t); d.Disagg.BytesSent != want {
			t.Errorf("%q: %d bytes were sent for %d tokens, want %d", c.Prompt, d.Disagg.BytesSent,
				n, want)
		}
		if d.FinishReason != "length" || d.Usage.PromptTokens != len(c.PromptIDs) ||
			d.Usage.CompletionTokens != 40 || d.Disagg.Policy != "builtin:fcfs" ||
			d.Disagg.PolicyCalls < 40 || d.Disagg.Chunks != 1 {
			t.Errorf("%q: %+v", c.Prompt, d)
		}
		if c.Text != "" && strings.TrimSpace(d.Text) != strings.TrimSpace(c.Text) {
			t.Errorf("%q: text %q, want %q", c.Prompt, d.Text, c.Text)
		}
	}
}

// oneDocument reads stdout, which must hold one JSON document and nothing else.
func oneDocument(t *testing.T, out string) document {
	t.Helper()
	var d document
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatalf("stdout is no JSON document: %v\n%s", err, out)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("stdout goes on after the document: %s", out)
	}
	return d
}

func joinIDs(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	return b.String()
}

// TestRunAsAProcess looks at the streams of a real process: the text alone on stdout, and with
// --json the document alone.
func TestRunAsAProcess(t *testing.T) {
	c := embeddedGolden().cases(t)[0]
	flags := []string{"run", "--temperature", "0", "--ignore-eos", "--max-tokens", "40"}
	p := launch(t, append(flags, "--json", "--token-ids", joinIDs(c.PromptIDs))...)
	p.wait(0)
	d := oneDocument(t, p.out.String())
	if !slices.Equal(d.TokenIDs, c.GreedyIDs) {
		t.Errorf("tokens %v, want %v", d.TokenIDs, c.GreedyIDs)
	}
	p = launch(t, append(flags, c.Prompt)...)
	p.wait(0)
	if got := p.out.String(); got != d.Text+"\n" {
		t.Errorf("stdout is %q, want %q and a newline", got, d.Text)
	}
	for _, want := range []string{"8 → 40 tokens (length)", "kv 7.0 KiB sent", "policy"} {
		if !strings.Contains(p.err.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, p.err)
		}
	}
	// The same from stdin.
	p = launch(t, flags...)
	if _, err := io.WriteString(p.stdin, c.Prompt+"\n"); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	p.wait(0)
	if got := p.out.String(); got != d.Text+"\n" {
		t.Errorf("from stdin: %q, want %q and a newline", got, d.Text)
	}
}
