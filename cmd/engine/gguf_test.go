package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/tokenizer"
)

// TestGGUF: a GGUF file and the folder that it was made from say the same, through the whole
// engine, and the file is shown as what it is.
func TestGGUF(t *testing.T) {
	models := filepath.Join(sharedDir(t), "data", "models", "stories260k")
	file := filepath.Join(models, "gguf", "stories260K-F32.gguf")
	say := func(model string) string {
		got := invoke(t, "", "run", "--model", model, "Once upon a time", "--max-tokens", "20",
			"--temperature", "0")
		if got.code != 0 {
			t.Fatalf("%s: %+v", model, got)
		}
		return got.out
	}
	if folder, one := say(filepath.Join(models, "hf-f32")), say(file); folder != one {
		t.Errorf("the folder says %q, the file %q", folder, one)
	}
	toml := filepath.Join(t.TempDir(), "engine.toml")
	text := "[model]\npath = " + quoted(file) + "\n"
	if err := os.WriteFile(toml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "", "config", "check", "-c", toml)
	if got.code != 0 || !strings.Contains(got.out, "stories260K-F32, 1.0 MiB") {
		t.Errorf("config check: %+v", got)
	}
	cut := filepath.Join(t.TempDir(), "cut.gguf")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(cut, data[:len(data)-1], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got = invoke(t, "", "run", "--model", cut, "x")
	if got.code == 0 || !strings.Contains(got.err, "truncated?") {
		t.Errorf("a file without its last byte: %+v", got)
	}
}

// TestDamagedTokenizerNamesItsKey damages the metadata of a GGUF file that a tokenizer is made of,
// byte by byte: whatever is refused is told by a key of the file, never by the name of a file that
// only this engine makes of it.
func TestDamagedTokenizerNamesItsKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.gguf")
	got := invoke(t, "", "quantize", "../../host/model/embedded/checkpoint", file)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(data []byte) string {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := model.Folder(file)
		if err == nil {
			_, err = tokenizer.Load(files)
		}
		if err == nil {
			return ""
		}
		return err.Error()
	}
	from := bytes.Index(whole, []byte("tokenizer.ggml.merges"))
	if from < 0 || refused(whole) != "" {
		t.Fatal("the file has no merges, or is refused: ", refused(whole))
	}
	data := bytes.Clone(whole)
	at := from + len("tokenizer.ggml.merges") + 4 + 4 + 8 + 8 // types, count, first length
	data[at] = 'Q'
	if got := refused(data); !strings.Contains(got, `"tokenizer.ggml.merges": merge 0 is "Q`) {
		t.Errorf("a damaged merge: %s", got)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	least := bytes.Index(whole, []byte("tokenizer.ggml.tokens"))
	for range 60 {
		data := bytes.Clone(whole)
		for range 1 + random.IntN(3) {
			data[least+random.IntN(from+9000-least)] = byte(random.Uint32())
		}
		if got := refused(data); strings.Contains(got, ".json") {
			t.Errorf("seed %d: %s", seed, got)
		}
	}
}

// TestQuantize writes a folder as a file, which runs, and never half of one.
func TestQuantize(t *testing.T) {
	folder := filepath.Join(sharedDir(t), "data", "models", "w256-bf16")
	out := filepath.Join(t.TempDir(), "small.gguf")
	got := invoke(t, "", "quantize", folder, out, "--type", "q8_0")
	if got.code != 0 || !strings.Contains(got.out, "11 F32, 37 Q8_0") {
		t.Fatalf("quantize: %+v", got)
	}
	got = invoke(t, "", "run", "--model", out, "Once upon a time", "--max-tokens", "8",
		"--temperature", "0")
	if got.code != 0 || got.out == "" {
		t.Errorf("run: %+v", got)
	}
	taken := filepath.Join(t.TempDir(), "folder.gguf")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is there already":          {folder, out},
		"Q5_9 is not known":         {folder, out, "--type", "Q5_9"},
		"should end in .gguf":       {folder, "small.bin"},
		"is a GGUF file already":    {out, out + "2.gguf"},
		"there is no folder nobody": {"nobody", "x.gguf"},
		"there is no folder none":   {folder, "none/x.gguf"},
		"is a folder; name a file":  {folder, taken, "--force"},
	} {
		got := invoke(t, "", append([]string{"quantize"}, args...)...)
		if got.code == 0 || !strings.Contains(got.err, want) ||
			strings.Contains(got.err, ".quantize") {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
	}
	narrow := filepath.Join("..", "..", "host", "model", "embedded", "checkpoint")
	got = invoke(t, "", "quantize", narrow, filepath.Join(t.TempDir(), "a.gguf"), "--type", "q4_k")
	if got.code != 0 || !strings.Contains(got.err, "no matrix became Q4_K") {
		t.Errorf("rows that no block divides: %+v", got)
	}
	files, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(files) != 1 {
		t.Errorf("beside the file: %v %v", files, err)
	}
}

// TestCheckFindsDamagedGGUF: a file whose numbers do not fit its tensors is refused by the check,
// by the header alone and in the words of loading.
func TestCheckFindsDamagedGGUF(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.gguf")
	got := invoke(t, "", "quantize", "../../host/model/embedded/checkpoint", file)
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	toml := filepath.Join(t.TempDir(), "engine.toml")
	text := "[model]\npath = " + quoted(file) + "\n"
	if err := os.WriteFile(toml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string][]int{".block_count": {-1, 1}, ".embedding_length": {1, 0}}
	for key, add := range damages {
		at := bytes.Index(whole, []byte(key)) + len(key) + 4 // behind the type of the value
		for _, n := range add {
			data := bytes.Clone(whole)
			data[at] += byte(n)
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			checked := invoke(t, "", "config", "check", "-c", toml)
			if n == 0 {
				if checked.code != 0 {
					t.Errorf("the whole file: %+v", checked)
				}
				continue
			}
			ran := invoke(t, "", "run", "--model", file, "x")
			if checked.code != exitConfig || ran.code == 0 {
				t.Fatalf("%s%+d: the check says %+v, run %+v", key, n, checked, ran)
			}
			_, words, _ := strings.Cut(checked.err, "^ ")
			words, _, _ = strings.Cut(words, "\n")
			if words == "" || !strings.Contains(ran.err, words) {
				t.Errorf("%s%+d: the check says %q, run %q", key, n, words, ran.err)
			}
			if told := ran.err + checked.err; strings.Contains(told, "config.json") ||
				strings.Contains(told, "model.layers.") {
				t.Errorf("%s%+d: %q is told of a folder", key, n, ran.err)
			}
		}
	}
}

// TestChatWithoutATemplate: a file is not called a folder.
func TestChatWithoutATemplate(t *testing.T) {
	folder, file := copyModel(t), filepath.Join(t.TempDir(), "plain.gguf")
	settings := filepath.Join(folder, "tokenizer_config.json")
	text, err := os.ReadFile(settings)
	if err == nil {
		text = bytes.ReplaceAll(text, []byte(`"chat_template"`), []byte(`"no_template"`))
		err = os.WriteFile(settings, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, "", "quantize", folder, file); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got := invoke(t, "", "run", "--model", file, "--chat", "x")
	if got.code != exitFailed || strings.Contains(got.err, "model folder") ||
		!strings.Contains(got.err, "no chat template in the model's folder or file") {
		t.Errorf("%+v", got)
	}
}
