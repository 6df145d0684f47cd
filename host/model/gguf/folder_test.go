package gguf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// tinyFolder is the smallest file, and the folder that it shows.
func tinyFolder(t *testing.T) (*File, fs.FS) {
	t.Helper()
	f, err := Parse(tinyLlama())
	if err != nil {
		t.Fatal(err)
	}
	files, err := f.Folder()
	if err != nil {
		t.Fatal(err)
	}
	return f, files
}

// TestFolder reads what a folder of the smallest file says.
func TestFolder(t *testing.T) {
	_, files := tinyFolder(t)
	read := func(name string, into any) {
		data, err := fs.ReadFile(files, name)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var config struct {
		Architectures []string       `json:"architectures"`
		Vocabulary    int            `json:"vocab_size"`
		HeadDim       int            `json:"head_dim"`
		Tied          bool           `json:"tie_word_embeddings"`
		EOS           []int          `json:"eos_token_id"`
		Scaling       map[string]any `json:"rope_scaling"`
	}
	read("config.json", &config)
	want := "{[LlamaForCausalLM] 6 2 true [2] map[factors:[2] rope_type:factors]}"
	if got := fmt.Sprint(config); got != want {
		t.Errorf("config.json says %s, want %s", got, want)
	}
	var tokens struct {
		Model struct {
			Merges [][2]string `json:"merges"`
		} `json:"model"`
	}
	read("tokenizer.json", &tokens)
	if got := fmt.Sprint(tokens.Model.Merges); got != "[[a b]]" {
		t.Error(got)
	}
	var about struct {
		Template string `json:"chat_template"`
		BOS      string `json:"bos_token"`
	}
	read("tokenizer_config.json", &about)
	if about.Template != "{{ messages }}" || about.BOS != "<s>" {
		t.Error(about)
	}
	if entries, err := fs.ReadDir(files, "."); err != nil || len(entries) != 3 {
		t.Error(entries, err)
	}
	if _, err := files.Open("model.safetensors"); err == nil {
		t.Error("a file that is not there was opened")
	}
}

func TestFolderRefuses(t *testing.T) {
	whole := tinyLlama()
	for want, change := range map[string][2]string{
		`"general.architecture" is missing`:         {"architecture", "architecturf"},
		`"lloma" is not supported; supported are`:   {"\x00llama\x11", "\x00lloma\x11"},
		`"llama.block_count" is missing`:            {"block_count", "block_counu"},
		`"token_embd.weight" is missing`:            {"token_embd.weight", "token_embe.weight"},
		`"tokenizer.ggml.tokens" is missing`:        {"ggml.tokens", "ggml.tokent"},
		`are both "a"`:                              {"\x00b\x02", "\x00a\x02"},
		`token 5 is not UTF-8`:                      {"\x00ab", "\x00\xffb"},
		`6 tokens and 0 of "tokenizer.ggml.scores"`: {"ggml.scores", "ggml.scoret"},
	} {
		if !bytes.Contains(whole, []byte(change[0])) {
			t.Errorf("%q is not in the file", change[0])
		}
		f, err := Parse(bytes.Replace(whole, []byte(change[0]), []byte(change[1]), 1))
		if err == nil {
			_, err = f.Folder()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestNumbersAreFinite: what is no number, and what is endless, is refused by its key.
func TestNumbersAreFinite(t *testing.T) {
	for want, bits := range map[string]writer{
		`"a" is NaN; a finite number`:  {6, 0, 0, 0, 0, 0, 0xc0, 0x7f},
		`"a" is +Inf; a finite number`: {6, 0, 0, 0, 0, 0, 0x80, 0x7f},
		`"a" is -Inf; a finite number`: {12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0xff},
	} {
		f, err := Parse(build([]pair{{"a", bits}}, nil, 0))
		if err != nil {
			t.Fatal(err)
		}
		k := &keys{file: f}
		if got := k.number("a", 3); got != 3 || k.err == nil ||
			!strings.Contains(k.err.Error(), want) {
			t.Errorf("%v, %v, want %q", got, k.err, want)
		}
	}
}
