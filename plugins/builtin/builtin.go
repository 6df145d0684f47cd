// Package builtin holds the shipped policies as WebAssembly modules, built from examples/plugins
// and embedded, so that an engine has policies without any file, each with its policy.toml. A test
// of plugins/policyfile rebuilds them and compares.
package builtin

import (
	"embed"
	"strings"
)

//go:embed *.wasm *.toml
var modules embed.FS

// Names lists the policies, sorted.
func Names() []string {
	entries, err := modules.ReadDir(".")
	if err != nil {
		panic(err) // The folder is part of the binary.
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".wasm"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Module returns a policy's module, the caller's to keep; false when there is none of that name.
func Module(name string) ([]byte, bool) {
	module, err := modules.ReadFile(name + ".wasm")
	return module, err == nil
}

// About returns a policy's policy.toml: what it does, and what can be set; false when there is none
// of that name.
func About(name string) ([]byte, bool) {
	text, err := modules.ReadFile(name + ".toml")
	return text, err == nil
}
