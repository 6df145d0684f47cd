package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
)

// sharedDir is the folder of shared test data. Without it the test is skipped, unless
// ENGINE_REQUIRE_SHARED=1 makes that a failure.
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

// families are the tokenizers that have goldens and files.
var families = []string{
	"stories260K", "llama2", "mistral_v1", "gpt2", "llama3_1", "qwen3", "gemma3",
}

// loaded keeps tokenizers between tests: some take a while to load.
var loaded sync.Map

// family loads one of families, its tokenizer.json unpacked.
func family(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if got, ok := loaded.Load(name); ok {
		return got.(*Tokenizer)
	}
	tok, err := Load(familyFiles(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	loaded.Store(name, tok)
	return tok
}

func familyFiles(t testing.TB, name string) fs.FS {
	t.Helper()
	dir := sharedDir(t)
	if name == "stories260K" {
		return os.DirFS(filepath.Join(dir, "models", "stories260k", "hf-f32"))
	}
	dir = filepath.Join(dir, "tokenizers", name)
	packed, err := os.ReadFile(filepath.Join(dir, "tokenizer.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{mainFile: {Data: data}}
	if config, err := os.ReadFile(filepath.Join(dir, configName)); err == nil {
		files[configName] = &fstest.MapFile{Data: config}
	}
	return files
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
