package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const abiDir = ".."

// TestGeneratedFilesAreCurrent fails when abi.toml, or a generator, changed and `go generate ./abi`
// was not run, or when somebody edited what is generated.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate(abiDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(abiDir, f.path))
		if err != nil {
			t.Errorf("%s: %v; run: go generate ./abi", f.path, err)
			continue
		}
		if !bytes.Equal(have, f.text) {
			t.Errorf("%s is not what abi.toml gives; run: go generate ./abi", f.path)
		}
	}
	golden, err := filepath.Glob(filepath.Join(abiDir, "testdata/*.txt"))
	if err != nil || len(golden) < 7 {
		t.Errorf("golden files: %q %v", golden, err)
	}
}

func TestGenerateTwiceChangesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"abi.toml", "SPEC.md", "guest/c/pol.h"} {
		text, err := os.ReadFile(filepath.Join(abiDir, path))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	files, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(dir, f.path))
		if err != nil || !bytes.Equal(have, f.text) {
			t.Errorf("%s changed from the first run to the second (%v)", f.path, err)
		}
	}
}

func TestBadSourceIsRefused(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(abiDir, "abi.toml"))
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct{ old, new, want string }{
		{"offset = 28\n", "offset = 32\n", "ends at 28"},
		{`name = "now_ns"`, `name = "step"`, "named twice"},
		{`type = "i64"`, `type = "f80"`, "f80"},
		{"size = 192", "size = 200", "size is 200"},
		{`source = "constant"`, ``, "needs a doc and a source"},
		{`name = "swap", value = 2`, `name = "swap", value = 3`, "not one bit"},
		{`name = "swap", value = 2`, `name = "swap", value = 1`, "are the same"},
		{`kind = "bits"`, `kind = "bit"`, `kind "bit"`},
		{`magic = "POL1"`, `magik = "POL1"`, "unknown keys"},
		{"[[record]]", "[[record", "line"},
	}
	path := filepath.Join(t.TempDir(), "abi.toml")
	for _, c := range cases {
		text := strings.Replace(string(good), c.old, c.new, 1)
		if text == string(good) {
			t.Fatalf("%q is not in abi.toml", c.old)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := load(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v, want %q", c.old, c.new, err, c.want)
		}
	}
}

func TestSplice(t *testing.T) {
	fill := func(what string) (string, error) { return "new " + what + "\n", nil }
	got, err := splice([]byte("a\n<!-- abi: x y -->\nold\n<!-- abi: end -->\nb\n"), fill)
	want := "a\n<!-- abi: x y -->\nnew x y\n<!-- abi: end -->\nb\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{
		"/* abi: end */\n", "/* abi: x */\n", "/* abi: x */\n/* abi: y */\n/* abi: end */\n",
	} {
		if _, err := splice([]byte(bad), fill); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
