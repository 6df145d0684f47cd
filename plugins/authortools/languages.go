package authortools

import (
	"fmt"
	"slices"
	"strings"
)

// Language is a language that a policy can be written in.
type Language struct {
	Name   string // as in policy.toml
	Short  string // as after --lang
	Source string // the file to read first
	// Tool is the placeholder in Commands that stands for the compiler.
	Tool string
	// Commands make the module; see expand for what {…} stands for.
	Commands [][]string
	sdk      []tree
	dir      string // of the templates
	summary  string
	settings bool // the template has the setting aging_tokens_per_s
}

// tree is a folder or file of the SDKs, and where it goes in a new folder.
type tree struct{ from, to string }

// sjf and fcfs are what the templates do.
const (
	sjf  = "Shortest remaining prompt first; waiting counts in its favour."
	fcfs = "First come, first served: chunks in order of arrival, as long as the budget lasts."
)

// Languages lists them. What a replay can tell of a trap is kept as far as the same source gives
// the same bytes in any folder: lines in C, names of functions in the others. Zig keeps names only
// together with half a megabyte of lines that name the folder; its panics say enough.
func Languages() []Language {
	return []Language{
		{Name: "c", Short: "c", Source: "policy.c", Tool: "{cc}", dir: "c", summary: sjf,
			settings: true, sdk: []tree{{"guest/c/pol.h", "c/pol.h"}},
			// Linked apart and without -O: else clang runs any wasm-opt that it finds.
			Commands: [][]string{words("{cc} --target=wasm32 -std=c11 -O2 -Wall -Wextra " +
				"-ffreestanding -mbulk-memory -g -ffile-prefix-map={sdk}=sdk " +
				"-fdebug-compilation-dir=. -I{sdk}/c {flags} -c policy.c -o {tmp}/policy.o"),
				words("{cc} --target=wasm32 -nostdlib -Wl,--no-entry -Wl,--stack-first " +
					"-Wl,-z,stack-size=65536 -Wl,--max-memory=16777216 " +
					"{tmp}/policy.o -o {out}")}},
		{Name: "rust", Short: "rust", Source: "src/lib.rs", Tool: "{rustc}", dir: "rust",
			summary: sjf, settings: true, sdk: []tree{{"guest/rust", "rust"}},
			Commands: [][]string{words("{rustc} --edition 2021 --target wasm32-unknown-unknown " +
				"--crate-type rlib --crate-name pol -C opt-level=3 -C panic=abort " +
				"-C codegen-units=1 -C target-feature=+bulk-memory " +
				"--remap-path-prefix {sdk}/rust=pol {sdk}/rust/src/lib.rs -o {tmp}/libpol.rlib"),
				words("{rustc} --edition 2021 --target wasm32-unknown-unknown " +
					"--crate-type cdylib --crate-name policy -C opt-level=3 -C panic=abort " +
					"-C codegen-units=1 -C lto=fat -C target-feature=+bulk-memory " +
					"-C strip=debuginfo -C link-arg=-zstack-size=65536 " +
					"-C link-arg=--max-memory=16777216 {linker} {flags} " +
					"--extern pol={tmp}/libpol.rlib src/lib.rs -o {out}")}},
		{Name: "go", Short: "go", Source: "policy.go", Tool: "{go}", dir: "go", summary: sjf,
			settings: true, sdk: goTrees(),
			Commands: [][]string{append(words("{go} build -buildmode=c-shared -trimpath"),
				append([]string{"-ldflags=-w"}, words("{flags} -o {out} .")...)...)}},
		{Name: "assemblyscript", Short: "as", Source: "policy.ts", Tool: "{asc}", dir: "as",
			summary: sjf, settings: true,
			sdk: []tree{{"guest/assemblyscript", "assemblyscript/pol"}},
			Commands: [][]string{words("{asc} policy.ts -o {out} -O3 --noAssert --runtime stub " +
				"--debug --exportStart _initialize --maximumMemory 256 " +
				"--path {sdk}/assemblyscript {flags}")}},
		{Name: "zig", Short: "zig", Source: "policy.zig", Tool: "{zig}", dir: "zig", summary: sjf,
			settings: true, sdk: []tree{{"guest/zig", "zig"}},
			Commands: [][]string{words("{zig} build-exe -target wasm32-freestanding " +
				"-O ReleaseSafe -fstrip --dep pol -Mroot=policy.zig -O ReleaseSafe -fstrip " +
				"-Mpol={sdk}/zig/src/pol.zig -fno-entry -rdynamic --stack 65536 " +
				"--max-memory=16777216 --cache-dir {tmp}/zig {flags} -femit-bin={out}")}},
		{Name: "wat", Short: "wat", Source: "policy.wat", Tool: "{wat2wasm}", dir: "wat",
			summary: fcfs, Commands: [][]string{words("{wat2wasm} --debug-names policy.wat " +
				"{flags} -o {out}")}},
	}
}

func words(text string) []string { return strings.Fields(text) }

// goTrees is the module that the replace directive of go.mod points to.
func goTrees() []tree {
	list := []tree{{"guest/go", "go/abi/guest/go"}}
	for _, name := range []string{"abi.go", "abi_gen.go", "handshake.go", "view.go"} {
		list = append(list, tree{name, "go/abi/" + name})
	}
	return list
}

// FindLanguage finds a language by either of its names.
func FindLanguage(name string) (Language, error) {
	all := Languages()
	i := slices.IndexFunc(all, func(l Language) bool { return l.Short == name || l.Name == name })
	if i < 0 {
		var names []string
		for _, l := range all {
			names = append(names, l.Short)
		}
		return Language{}, fmt.Errorf("no language %q; there are: %s", name,
			strings.Join(names, ", "))
	}
	return all[i], nil
}
