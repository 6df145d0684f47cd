package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// everywhere runs each command that takes a model on a path, and wants it refused with the words.
func everywhere(t *testing.T, path, want string) {
	t.Helper()
	toml := filepath.Join(t.TempDir(), "engine.toml")
	text := "version = 1\n[model]\npath = " + quoted(path) + "\n"
	if err := os.WriteFile(toml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "--model", path, "x"},
		{"run", "-c", toml, "x"},
		{"bench", "--model", path, "-p", "8", "-n", "0"},
		{"bench", "--serving", "--model", path},
		{"tokenize", "--json-lines", "--model", path},
		{"quantize", path, filepath.Join(t.TempDir(), "out.gguf")},
		{"config", "check", "-c", toml},
		{"serve", "-c", toml},
		{"serve", "--demo-pd", "--model", path, "--out", shortDir(t)},
	} {
		got := invoke(t, "", args...)
		if got.code == 0 || !strings.Contains(got.err, want) ||
			!strings.Contains(got.err, filepath.Base(path)) {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
	}
}

// TestAFolderOfGGUFFiles names the files that could be meant, one of each that is in parts.
func TestAFolderOfGGUFFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a-Q8_0.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf",
		"README.md"} {
		write(name)
	}
	everywhere(t, folder, "name one of the GGUF files in it: a-Q8_0.gguf, b-00001-of-00002.gguf")
	for _, name := range []string{"c", "d", "e", "f", "g", "h", "i", "j"} {
		write(name + ".gguf")
	}
	_, err := findModel(folder, ".")
	if err == nil || !strings.HasSuffix(err.Error(), "h.gguf, and 2 more") {
		t.Errorf("many files: %v", err)
	}
	write("tokenizer.json")
	if _, err := findModel(folder, "."); err != nil {
		t.Errorf("a folder with a tokenizer may be what is meant: %v", err)
	}
}
