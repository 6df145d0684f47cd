package plugins

import "github.com/kvrelay/engine/abi"

// Judge checks an answer against the records as they were shown, of a module that was granted all
// that a host offers: the hard rules of the ABI. The engine's scheduler judges by the same rules;
// this is for trying modules without an engine.
func Judge(v *abi.View, out []abi.Decision) error {
	return new(abi.Judge).Check(v, out, abi.CapsOffered)
}
