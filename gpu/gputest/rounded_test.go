package gputest

import (
	"testing"

	"github.com/kvrelay/engine/gpu"
)

// stand is as much of a device as a comparison asks for.
type stand struct {
	gpu.Device
	varies bool
}

func (s stand) RowsVary() bool       { return s.varies }
func (s stand) Precision() gpu.DType { return gpu.BF16 }

// TestRowsThatVary: where a device says that products vary with the rows beside them, a unit of its
// type is forgiven, and nothing that another row or a wrong sum would make.
func TestRowsThatVary(t *testing.T) {
	want := []float32{1, -2, 0.5, 3, -1.5, 0.25, 2, -1}
	unit := append([]float32(nil), want...)
	unit[3] += 1. / (1 << 6) // The next bf16 number after 3.
	other := []float32{-2, 0.5, 3, -1.5, 0.25, 2, -1, 1}
	for _, c := range []struct {
		what   string
		got    []float32
		varies bool
		passes bool
	}{
		{"equal bits", want, false, true}, {"equal bits", want, true, true},
		{"a unit", unit, false, false}, {"a unit", unit, true, true},
		{"another row", other, false, false}, {"another row", other, true, false},
	} {
		p := &pair{T: t, device: stand{varies: c.varies}}
		if p.sameBits(c.got, want) != c.passes {
			t.Errorf("%s, rows vary %t: passes %t, want %t", c.what, c.varies, !c.passes, c.passes)
		}
	}
}
