// Package kernels holds the CUDA kernels: their PTX, what parameters each takes, and how each is
// launched. It is plain Go and knows no driver; a launch is a value that package cuda hands on.
//
// The sources are in src: one set of files for the GPU (clang, to kernels.ptx) and for the emulated
// driver (g++). Activations A are stored as f32, f16 or bf16, one type for all buffers of a device,
// and every sum is taken in float32. Weights of norms have the type of the activations.
//
// A KV pool is one allocation, [layer][page][key, value][slot][head][dim] in the pool's type, so a
// whole page of one layer lies in memory as gpu.KVRange's canonical layout has it.
//
// Kernels check nothing: arguments are what the checks of gpu.Kernels have let through. Pointers
// are device addresses as the driver gives them.
package kernels

import (
	_ "embed"
	"fmt"

	"github.com/kvrelay/engine/gpu"
)

//go:embed kernels.ptx
var ptx string

// PTX is the code of all kernels, for compute capability 8.0 and later.
func PTX() string { return ptx }

// Type is the type of a kernel's parameter.
type Type uint8

// The types of parameters. A Pointer is 8 bytes, the others are 4.
const (
	Pointer Type = iota
	Int
	Float
)

// Bytes is the size of a parameter.
func (t Type) Bytes() int {
	if t == Pointer {
		return 8
	}
	return 4
}

// ID names a kernel by its place in Table.
type ID int

// Kernel is one entry point of the PTX.
type Kernel struct {
	Name   string
	Params []Type
	// Shared is the most dynamic shared memory in bytes that a launch of it asks for, on a device
	// that has so much. Above 48 KiB the driver must be told before the first launch.
	Shared int
}

// The families of kernels, in the order of Table.
const (
	embedRows = iota
	normRows
	normHeads
	ropeAppend
	glu
	gatherRows
	addRows
	biasRows
	attendAny
	attendCombine
	argmax
	topK
	fill
	fromFloat
	toFloat
	byActivation // how many come once for each type of activations

	ropeTable = iota - byActivation - 1
	copyPages
	packPages
	unpackPages
	single // how many come once
)

// The types that kernels come in.
const (
	activationTypes = 3
	storedTypes     = 2 // of tensor core kernels
)

// activation gives the kernel of a family for a type of activations.
func activation(family int, t gpu.DType) ID { return ID(family*activationTypes + int(t)) }

// alone gives a kernel that comes once.
func alone(family int) ID { return ID(byActivation*activationTypes + family) }

// headDims are the head sizes that the tensor core kernels are built for.
var headDims = [...]int{64, 128, 256}

// attendFast gives the tensor core kernel for stored keys of type t, which is F16 or BF16.
func attendFast(decode bool, t gpu.DType, dim int) ID {
	id := byActivation*activationTypes + single
	if decode {
		id += storedTypes * len(headDims)
	}
	if t == gpu.BF16 {
		id += len(headDims)
	}
	for i, d := range headDims {
		if d == dim {
			return ID(id + i)
		}
	}
	panic(fmt.Sprintf("kernels: no tensor core attention for heads of %d", dim))
}

// signatures are the parameters of each family: p a pointer, i an int, f a float.
var signatures = [...]struct{ name, params string }{
	embedRows:     {"embed", "ppipif"},
	normRows:      {"norm_row", "ppppiiiiffii"},
	normHeads:     {"norm_head", "ppppiiiiffii"},
	ropeAppend:    {"rope_append", "ppippiiiii"},
	glu:           {"glu", "ppii"},
	gatherRows:    {"gather", "pppi"},
	addRows:       {"add_rows", "ppppi"},
	biasRows:      {"bias_rows", "ppi"},
	attendAny:     {"attend_any", "pppipiiiiffii"},
	attendCombine: {"attend_combine", "pppii"},
	argmax:        {"argmax", "ppi"},
	topK:          {"top_k", "pppppii"},
	fill:          {"fill", "piif"},
	fromFloat:     {"from_float", "ppi"},
	toFloat:       {"to_float", "ppi"},
}

// singles are the parameters of those that come once.
var singles = [...]struct{ name, params string }{
	ropeTable:   {"rope_table", "pppif"},
	copyPages:   {"kv_copy", "ppiiii"},
	packPages:   {"kv_pack", "pppiii"},
	unpackPages: {"kv_unpack", "pppiii"},
}

const (
	prefillParams = "pppipiiiffiiip"
	decodeParams  = "pppipiiiffiii"
)

func parameters(s string) (types []Type) {
	for _, c := range s {
		types = append(types, map[rune]Type{'p': Pointer, 'i': Int, 'f': Float}[c])
	}
	return types
}

// Table lists every kernel, by ID.
func Table() []Kernel {
	var all []Kernel
	for family, s := range signatures {
		for t := range gpu.DType(activationTypes) {
			k := Kernel{Name: s.name + "_" + t.String(), Params: parameters(s.params)}
			if family == topK {
				k.Shared = topKShared
			}
			all = append(all, k)
		}
	}
	for _, s := range singles {
		all = append(all, Kernel{Name: s.name, Params: parameters(s.params)})
	}
	for _, decode := range []bool{false, true} {
		name, params := "attend_prefill", prefillParams
		if decode {
			name, params = "attend_decode", decodeParams
		}
		for _, t := range []gpu.DType{gpu.F16, gpu.BF16} {
			for _, dim := range headDims {
				all = append(all, Kernel{Name: fmt.Sprintf("%s_%v_%d", name, t, dim),
					Params: parameters(params), Shared: attentionShared(decode, dim)})
			}
		}
	}
	return all
}
