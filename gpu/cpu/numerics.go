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
	// NumericsTDP differs from NumericsFMA for weights that are not quantised alone: they are
	// multiplied as sums of bfloat16 in the order of AMX's tile product. See tdp.go.
	NumericsTDP = "tdp"
	// NumericsTDPInt8 is NumericsTDP with quantised weights as in NumericsInt8.
	NumericsTDPInt8 = "tdp-int8"
)

// numericsClass is a class taken apart.
type numericsClass struct {
	tdp  bool // for weights that are not quantised
	int8 bool // for those that are
}

// classOf reads a class; an unknown one is a mistake of the caller.
func classOf(numerics string) numericsClass {
	base, integers := strings.CutSuffix(numerics, "-int8")
	if base != NumericsFMA && base != NumericsTDP {
		panic(fmt.Sprintf("cpu: there is no numerics class %q", numerics))
	}
	return numericsClass{tdp: base == NumericsTDP, int8: integers}
}

func (c numericsClass) String() string {
	name := NumericsFMA
	if c.tdp {
		name = NumericsTDP
	}
	if c.int8 {
		name += "-int8"
	}
	return name
}

// of is the class that weights of some types are computed in: what the others would be does not
// show.
func (c numericsClass) of(types []gpu.DType) string {
	plain, quantised := false, false
	for _, t := range types {
		plain, quantised = plain || !t.Quantised(), quantised || t.Quantised()
	}
	return numericsClass{tdp: c.tdp && plain, int8: c.int8 && quantised}.String()
}
