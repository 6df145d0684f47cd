// Package abi is the contract between the engine and its scheduling policies: step header, request
// record, decision, descriptor, and every code and limit, as bytes.
//
// The records are little-endian and lie at fixed offsets; SPEC.md is the normative text, abi.toml
// the one source both are made from. The package does no I/O and holds no state, and it compiles
// for wasip1, so that a policy written in Go uses the same code as the host.
package abi

import "fmt"

//go:generate go run ./gen

// TokensAuto as a decision's token count leaves the chunk length to the host.
const TokensAuto = 0xFFFFFFFF

func short(record string, want, have int) error {
	return fmt.Errorf("abi: a %s is %d bytes, there are %d", record, want, have)
}
