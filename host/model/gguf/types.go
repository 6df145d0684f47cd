package gguf

import "fmt"

// Type is how the elements of a tensor are stored, numbered as in the ggml project's ggml_type.
type Type uint32

// The types that weights may have here.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// form is the unit in which a type stores elements: a block of so many in so many bytes.
type form struct {
	name         string
	block, bytes int
}

// form tells the types apart whose size is known. Those that are not weights here are known so
// that a file with one is refused by its name and not by a guess at its size.
func (t Type) form() (form, bool) {
	switch t {
	case F32:
		return form{"F32", 1, 4}, true
	case F16:
		return form{"F16", 1, 2}, true
	case BF16:
		return form{"BF16", 1, 2}, true
	case Q4_0:
		return form{"Q4_0", 32, 18}, true
	case Q4_1:
		return form{"Q4_1", 32, 20}, true
	case Q5_0:
		return form{"Q5_0", 32, 22}, true
	case Q5_1:
		return form{"Q5_1", 32, 24}, true
	case Q8_0:
		return form{"Q8_0", 32, 34}, true
	case Q4_K:
		return form{"Q4_K", 256, 144}, true
	case Q5_K:
		return form{"Q5_K", 256, 176}, true
	case Q6_K:
		return form{"Q6_K", 256, 210}, true
	}
	f, ok := others[t]
	return f, ok
}

// others are types of the format that no device computes with. It is never written.
var others = map[Type]form{
	9:  {"Q8_1", 32, 36},
	10: {"Q2_K", 256, 84},
	11: {"Q3_K", 256, 110},
	15: {"Q8_K", 256, 292},
	16: {"IQ2_XXS", 256, 66},
	17: {"IQ2_XS", 256, 74},
	18: {"IQ3_XXS", 256, 98},
	19: {"IQ1_S", 256, 50},
	20: {"IQ4_NL", 32, 18},
	21: {"IQ3_S", 256, 110},
	22: {"IQ2_S", 256, 82},
	23: {"IQ4_XS", 256, 136},
	24: {"I8", 1, 1},
	25: {"I16", 1, 2},
	26: {"I32", 1, 4},
	27: {"I64", 1, 8},
	28: {"F64", 1, 8},
	29: {"IQ1_M", 256, 56},
	34: {"TQ1_0", 256, 54},
	35: {"TQ2_0", 256, 66},
	39: {"MXFP4", 32, 17},
}

func (t Type) String() string {
	if f, ok := t.form(); ok {
		return f.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}
