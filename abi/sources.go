//go:build !wasip1

package abi

import "embed"

// Sources are the SDKs for policy authors and what they stand on, paths as in this folder: a binary
// that has them can start a policy where nothing of this module is installed.
//
//go:embed abi.go abi_gen.go handshake.go judge.go view.go SPEC.md
//go:embed guest/c/pol.h guest/rust guest/go guest/zig guest/assemblyscript guest/wat/fcfs.wat
var Sources embed.FS
