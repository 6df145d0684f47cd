// Package builtin holds the shipped policies as WebAssembly modules, built from examples/plugins
// and embedded, so that an engine has policies without any file. A test of plugins/policyfile
// rebuilds them and compares.
package builtin

import (
	"embed"
	"strings"
)

//go:embed *.wasm
var modules embed.FS

// Names lists the policies, sorted.
func Names() []string {
	entries, err := modules.ReadDir(".")
	if err != nil {
		panic(err) // The folder is part of the binary.
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".wasm"))
	}
	return names
}

// Module returns a policy's module, the caller's to keep; false when there is none of that name.
func Module(name string) ([]byte, bool) {
	module, err := modules.ReadFile(name + ".wasm")
	return module, err == nil
}
