// Package testdata holds small guests, most of them one way each to go wrong, for package
// plugintest. Their sources lie beside them.
package testdata

import "embed"

//go:embed *.wasm
var guests embed.FS

// Guest returns a module by its name, without .wasm; false when there is none.
func Guest(name string) ([]byte, bool) {
	wasm, err := guests.ReadFile(name + ".wasm")
	return wasm, err == nil
}
