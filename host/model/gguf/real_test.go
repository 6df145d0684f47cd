package gguf_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/model/gguf"
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

// realFiles are the two real models of the shared goldens, by the names of these.
var realFiles = map[string]string{
	"smollm2":     "SmolLM2-135M-Instruct.Q4_1.gguf",
	"gemma3-270m": "gemma-3-270m-q4_k_m.gguf",
}

// realFile is a real model; ENGINE_REAL_MODELS names the folder that holds both.
func realFile(t *testing.T, name string) *gguf.File {
	t.Helper()
	folder := os.Getenv("ENGINE_REAL_MODELS")
	if folder == "" {
		t.Skip("ENGINE_REAL_MODELS is not set")
	}
	f, err := gguf.Open(filepath.Join(folder, realFiles[name]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func readJSON(t *testing.T, into any, path ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{sharedDir(t)}, path...)...))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// load makes the tokenizer of a file.
func load(t *testing.T, f *gguf.File) *tokenizer.Tokenizer {
	t.Helper()
	files, err := f.Folder()
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// sample is one text of the goldens.
type sample struct {
	ID     int    `json:"id"`
	Text   string `json:"text"`
	Base64 string `json:"b64"`
	Repeat []any  `json:"repeat"`
}

func (s sample) text(t *testing.T) string {
	if s.Base64 != "" {
		raw, err := base64.StdEncoding.DecodeString(s.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if s.Repeat != nil {
		return strings.Repeat(s.Repeat[0].(string), int(s.Repeat[1].(float64)))
	}
	return s.Text
}

// TestRealTokens compares with llama.cpp's tokens of the same files.
func TestRealTokens(t *testing.T) {
	for name := range realFiles {
		t.Run(name, func(t *testing.T) {
			tok := load(t, realFile(t, name))
			var texts []sample
			readJSON(t, &texts, "tokenizer_golden", "strings.json")
			var golden struct {
				Cases []struct {
					ID    int     `json:"id"`
					IDs   []int32 `json:"ids"`
					Plain []int32 `json:"ids_no_special"`
				} `json:"cases"`
			}
			readJSON(t, &golden, "real", "tok_"+name+".json")
			byID := map[int]string{}
			for _, s := range texts {
				byID[s.ID] = s.text(t)
			}
			compared := 0
			for _, c := range golden.Cases {
				text, ok := byID[c.ID]
				if !ok || c.IDs == nil {
					continue
				}
				compared++
				got := tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
				if !slices.Equal(got, c.IDs) {
					t.Errorf("%d %q: %v, want %v", c.ID, clip(text), got, c.IDs)
				}
				want := c.IDs
				if c.Plain != nil {
					want = c.Plain
				}
				if text == "</s>" && name == "gemma3-270m" {
					want = c.IDs // an HTML tag, for llama.cpp an ending
				}
				if got := tok.Encode(text, tokenizer.EncodeOptions{}); !slices.Equal(got, want) {
					t.Errorf("%d %q as plain text: %v, want %v", c.ID, clip(text), got, want)
				}
			}
			t.Logf("%d texts", compared)
			if compared < 200 {
				t.Errorf("only %d texts were compared", compared)
			}
		})
	}
}

func clip(text string) string { return text[:min(len(text), 60)] }

// TestRealChats renders conversations with a file's own template, and with one given beside a file
// that has none.
func TestRealChats(t *testing.T) {
	for name := range realFiles {
		t.Run(name, func(t *testing.T) {
			tok := load(t, realFile(t, name))
			var golden struct {
				Template string `json:"template"`
				Cases    []struct {
					ID       string          `json:"id"`
					Messages json.RawMessage `json:"messages"`
					Generate bool            `json:"add_generation_prompt"`
					Text     string          `json:"text"`
					IDs      []int32         `json:"ids"`
					Error    string          `json:"error"`
				} `json:"cases"`
			}
			readJSON(t, &golden, "real", "chat_"+name+".json")
			template, err := tok.ChatTemplate("")
			if name == "gemma3-270m" {
				template, err = tok.ParseChatTemplate("golden", golden.Template)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range golden.Cases {
				text, err := template.Render(c.Messages,
					tokenizer.RenderOptions{AddGenerationPrompt: c.Generate})
				if c.Error != "" || c.Text == "" {
					if err == nil {
						t.Errorf("%s: rendered %q, want an error", c.ID, clip(text))
					}
					continue
				}
				ids := tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
				if err != nil || text != c.Text || !slices.Equal(ids, c.IDs) {
					t.Errorf("%s: %q %v %v\nwant %q %v", c.ID, text, ids, err, c.Text, c.IDs)
				}
			}
		})
	}
}
