package cpu

import (
	"fmt"
	"strings"

	"github.com/kvrelay/engine/gpu"
)

// The numerics classes of this package.
const (
	// NumericsFMA: one chain of single-rounded float32 FMAs an output, k ascending.
	NumericsFMA = "fma"
	// NumericsInt8 differs for quantised weights alone: they meet activations in 8-bit integers,
	// and an output is one chain over blocks of 32 exact integer products.
	NumericsInt8 = "fma-int8"
	// NumericsBF16 differs from NumericsFMA for weights in BF16 alone: activations that meet them
	// are rounded to bfloat16. See twin_bfloat.go.
	NumericsBF16 = "fma-bf16"
	// NumericsBF16Int8 is NumericsBF16 with quantised weights as in NumericsInt8.
	NumericsBF16Int8 = "fma-bf16-int8"
	// NumericsTDP differs from NumericsFMA for weights that are not quantised alone: they are
	// multiplied as sums of bfloat16 in the order of AMX's tile product. See tdp.go.
	NumericsTDP = "tdp"
	// NumericsTDPInt8 is NumericsTDP with quantised weights as in NumericsInt8.
	NumericsTDPInt8 = "tdp-int8"
)

// numericsClass is a class taken apart.
type numericsClass struct {
	tdp  bool // for weights that are not quantised
	bf16 bool // for those in BF16; never with tdp
	int8 bool // for those that are quantised
}

// classOf reads a class; an unknown one is a mistake of the caller.
func classOf(numerics string) numericsClass {
	base, integers := strings.CutSuffix(numerics, "-int8")
	if base != NumericsFMA && base != NumericsTDP && base != NumericsBF16 {
		panic(fmt.Sprintf("cpu: there is no numerics class %q", numerics))
	}
	return numericsClass{tdp: base == NumericsTDP, bf16: base == NumericsBF16, int8: integers}
}

func (c numericsClass) String() string {
	name := NumericsFMA
	switch {
	case c.tdp:
		name = NumericsTDP
	case c.bf16:
		name = NumericsBF16
	}
	if c.int8 {
		name += "-int8"
	}
	return name
}

// NumericsWith is the class that a device with these options computes weights of some types in.
func NumericsWith(o Options, types []gpu.DType) string {
	return numericsClass{o.TDP, o.BF16Activations, !o.FloatActivations}.of(types)
}

// of is the class that weights of some types are computed in: what the others would be does not
// show.
func (c numericsClass) of(types []gpu.DType) string {
	var seen numericsClass
	for _, t := range types {
		seen.tdp, seen.int8 = seen.tdp || !t.Quantised(), seen.int8 || t.Quantised()
		seen.bf16 = seen.bf16 || t == gpu.BF16
	}
	return numericsClass{c.tdp && seen.tdp, c.bf16 && seen.bf16, c.int8 && seen.int8}.String()
}
