package export_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/export"
	"github.com/kvrelay/engine/host/model/safetensors"
	"github.com/kvrelay/engine/host/tokenizer"
)

// sharedDir is the folder of test data that is not part of the repository.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %v", err)
		}
		t.Skipf("shared data not found: %v", err)
	}
	return filepath.Join(dir, "data")
}

// write writes a folder as a file and returns its path.
func write(t *testing.T, folder string, to gpu.DType) (string, *export.Report, error) {
	t.Helper()
	weights, err := safetensors.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	path := filepath.Join(t.TempDir(), "model.gguf")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	last, total := int64(0), int64(0)
	report, err := export.Write(file, export.Job{Files: os.DirFS(folder), Weights: weights,
		Name: "test", Type: to, Progress: func(done, of int64) error {
			last, total = done, of
			return nil
		}})
	if err == nil && (last != total || total == 0) {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	return path, report, err
}

// logits are those of all rows of a text.
func logits(t *testing.T, path string, tokens []int32) [][]float32 {
	t.Helper()
	device, err := cpu.Open(cpu.Options{FloatActivations: true})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	m, err := model.Load(device, path, model.Options{})
	if err == nil {
		_, err = m.NewKV(8, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, err := m.Run(&batch.Batch{Items: []batch.Item{{Tokens: tokens, Logits: len(tokens),
		Pages: []kvcache.PageID{3, 1, 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for _, r := range rows {
		out = append(out, slices.Clone(r))
	}
	return out
}

// TestSameModel: a folder and the file written of it without rounding compute the same bits, of
// every family; quantised, the file computes nearly the same.
func TestSameModel(t *testing.T) {
	shared := filepath.Join(sharedDir(t), "models")
	own := filepath.Join("..", "testdata", "random")
	tokens := []int32{1, 5, 9, 2, 40, 33, 17, 8, 3, 12, 59, 45, 7, 5, 5, 60, 31, 30, 4, 11,
		21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37}
	for folder, same := range map[string]bool{
		filepath.Join(shared, "stories260k", "hf-f32"): true,
		filepath.Join(shared, "llama-untied"):          true,
		filepath.Join(shared, "mistral-swa32"):         true,
		filepath.Join(shared, "qwen2-bias"):            true,
		filepath.Join(shared, "stories-qwen3"):         true,
		filepath.Join(shared, "gemma1"):                true,
		filepath.Join(shared, "stories-gemma3"):        true,
		// The factors of its rotation are rounded to float32.
		filepath.Join(shared, "llama3-rope"):           false,
		changed(t, filepath.Join(own, "phi3"), nil):    true,
		changed(t, filepath.Join(own, "mixtral"), nil): true,
		changed(t, filepath.Join(own, "linear"), nil):  true,
		// Files cannot say another scale of the queries.
		changed(t, filepath.Join(own, "gemma2"), map[string]any{"query_pre_attn_scalar": 12}): true,
	} {
		path, _, err := write(t, folder, gpu.F32)
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		got, want := logits(t, path, tokens), logits(t, folder, tokens)
		if off := distance(got, want); same && off != 0 || off > 1e-4 {
			t.Errorf("%s: logits of the file are off by %v", folder, off)
		}
	}
	for to, most := range map[gpu.DType]float64{gpu.Q8_0: 0.3, gpu.Q4_0: 4, gpu.Q4_K: 3} {
		folder := filepath.Join(shared, "w256-bf16")
		path, report, err := write(t, folder, to)
		if err != nil {
			t.Fatal(err)
		}
		off := distance(logits(t, path, tokens), logits(t, folder, tokens))
		t.Logf("%v: %v, logits move by %.2f", to, report.Tensors, off)
		if off > most || off == 0 {
			t.Errorf("%v: logits move by %v, at most %v is right", to, off, most)
		}
	}
	for folder, want := range map[string]string{
		"yarn": "scales scores", "qwen2-window": "its sliding window cannot be said",
		"gemma2": "its scores are multiplied by", "gemma3": "turn with a base of 5000",
	} {
		_, _, err := write(t, filepath.Join(own, folder), gpu.F32)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", folder, err, want)
		}
	}
}

// changed is a copy of a folder without a tokenizer, with the first tokens of another's, and some
// keys of its config.json changed.
func changed(t *testing.T, folder string, changes map[string]any) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	rewrite(t, folder, to, "config.json",
		func(config map[string]any) { maps.Copy(config, changes) })
	from := filepath.Join(sharedDir(t), "models", "stories260k", "hf-f32")
	rewrite(t, from, to, "tokenizer.json", func(tokenizer map[string]any) {
		m := tokenizer["model"].(map[string]any)
		m["merges"] = []string{}
		maps.DeleteFunc(m["vocab"].(map[string]any),
			func(_ string, id any) bool { return id.(float64) >= 64 })
	})
	return to
}

// rewrite writes a changed copy of a file of JSON.
func rewrite(t *testing.T, from, to, name string, change func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, name))
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(object)
	if data, err = json.Marshal(object); err == nil {
		err = os.WriteFile(filepath.Join(to, name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// distance is the largest difference.
func distance(a, b [][]float32) float64 {
	most := float32(0)
	for r := range b {
		for i, x := range b[r] {
			most = max(most, a[r][i]-x, x-a[r][i])
		}
	}
	return float64(most)
}

// TestSameTokens: the file's tokenizer gives the folder's tokens.
func TestSameTokens(t *testing.T) {
	folder := filepath.Join(sharedDir(t), "models", "stories260k", "hf-f32")
	path, _, err := write(t, folder, gpu.Q8_0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := model.Folder(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokenizer.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	want, err := tokenizer.Load(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(sharedDir(t), "tokenizer_golden", "strings.json"))
	var texts []struct {
		Text   string `json:"text"`
		Base64 string `json:"b64"`
	}
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range texts {
		text := one.Text
		if raw, err := base64.StdEncoding.DecodeString(one.Base64); err == nil && len(raw) > 0 {
			text = string(raw)
		}
		for _, o := range []tokenizer.EncodeOptions{{}, {AddSpecial: true, ParseSpecial: true}} {
			if a, b := got.Encode(text, o), want.Encode(text, o); !slices.Equal(a, b) {
				t.Errorf("%q: %v, the folder gives %v", text[:min(len(text), 40)], a, b)
			}
		}
	}
	if !bytes.Equal([]byte(got.Templates()["default"]), []byte(want.Templates()["default"])) {
		t.Error("the chat template is another")
	}
}

// TestProgressEndsTheWriting: the row at hand is the last one.
func TestProgressEndsTheWriting(t *testing.T) {
	folder := filepath.Join("..", "embedded", "checkpoint")
	weights, err := safetensors.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	enough, rows := errors.New("enough"), 0
	_, err = export.Write(io.Discard, export.Job{Files: os.DirFS(folder), Weights: weights,
		Name: "test", Type: gpu.Q8_0, Progress: func(int64, int64) error {
			if rows++; rows == 5 {
				return enough
			}
			return nil
		}})
	if !errors.Is(err, enough) || rows != 5 {
		t.Errorf("error %v after %d rows", err, rows)
	}
}
