// Command gen writes everything that follows from abi.toml: the Go codec, the views of the
// other languages, the tables of SPEC.md and the golden bytes. Run it as `go generate ./abi`.
//
// Its output depends on abi.toml alone, so that a test can compare it with what is committed.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run brings the files below root, the folder of abi.toml, up to date.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(root, f.path)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, f.text) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.text, 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", f.path)
	}
	return nil
}

// output is one generated file, its path relative to the folder of abi.toml.
type output struct {
	path string
	text []byte
}

// generate makes every output in memory. SPEC.md and pol.h are read, because only the parts between
// their markers are generated.
func generate(root string) ([]output, error) {
	s, err := load(filepath.Join(root, "abi.toml"))
	if err != nil {
		return nil, err
	}
	code, err := goCodec(s)
	if err != nil {
		return nil, err
	}
	golden, err := goGolden(s)
	if err != nil {
		return nil, err
	}
	files := []output{
		{"abi_gen.go", code},
		{"golden_gen_test.go", golden},
	}
	for _, r := range s.Records {
		path := fmt.Sprintf("testdata/%s.v%d.%d.txt", r.Name, s.ABI.Major, s.ABI.Minor)
		files = append(files, output{path, goldenText(r)})
	}
	spec, err := spliced(filepath.Join(root, "SPEC.md"), s.specTable)
	if err != nil {
		return nil, err
	}
	header, err := spliced(filepath.Join(root, "guest/c/pol.h"), s.cView)
	if err != nil {
		return nil, err
	}
	return append(files, output{"SPEC.md", spec}, output{"guest/c/pol.h", header},
		output{"guest/rust/src/abi.rs", rustView(s)},
		output{"guest/zig/src/abi.zig", zigView(s)},
		output{"guest/assemblyscript/assembly/abi.ts", asView(s)}), nil
}

func spliced(path string, make func(what string) (string, error)) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text, err = splice(text, make)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
