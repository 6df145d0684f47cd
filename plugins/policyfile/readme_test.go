package policyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeBuilds does what examples/plugins/README.md tells a newcomer: its C code, built by its
// own command.
func TestReadmeBuilds(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "examples/plugins/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, byHand, _ := strings.Cut(string(text), "## The same by hand, in C")
	code := block(t, byHand, "```c\n")
	if err := os.WriteFile(filepath.Join(dir, "mine.c"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	command := strings.ReplaceAll(block(t, byHand, "```sh\n"), "\\\n", " ")
	command = strings.ReplaceAll(command, `"$ENGINE/abi/guest/c"`, "{sdk}/c")
	clang := Tool{
		Command: []string{"clang-14", "--version"}, Version: "clang version 14",
		Install: "apt-get install clang-14 lld-14",
	}
	build := Build{Commands: [][]string{strings.Fields(command)}, Tools: []Tool{clang}}
	needTools(t, build, "c")
	err = build.Run(t.Context(), Dirs{Source: dir, SDK: filepath.Join(root, "abi/guest")})
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(dir, "mine.wasm"))
	if err != nil || len(module) < 1000 {
		t.Errorf("%d bytes, %v", len(module), err)
	}
}

// block is the first block of code that begins with a fence, its indent taken off.
func block(t *testing.T, text, fence string) string {
	_, rest, found := strings.Cut(text, fence)
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("there is no block %q", fence)
	}
	return strings.ReplaceAll(code, "\n   ", "\n")
}
