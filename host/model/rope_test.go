package model

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"testing"
)

func TestPower(t *testing.T) {
	for _, base := range []float64{1e-3, 0.5, 1, 1.5, 10000, 500000, 1e6, 1e8} {
		for exponent := -1.0; exponent <= 1; exponent += 1.0 / 64 {
			got, want := power(base, exponent), math.Pow(base, exponent)
			if math.Abs(got-want) > 1e-14*want {
				t.Fatalf("%v^%v = %v, want %v", base, exponent, got, want)
			}
		}
	}
}

// TestPowerIsTheSameEverywhere: the rotation of a prompt's keys must not depend on the machine.
func TestPowerIsTheSameEverywhere(t *testing.T) {
	h := fnv.New64a()
	for i := range 64 {
		for _, theta := range []float64{10000, 500000, 1e6} {
			f := power(theta, -2*float64(i)/128)
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)))
		}
	}
	const want = "8e544ffa928d5a07"
	if got := fmt.Sprintf("%x", h.Sum64()); got != want {
		t.Errorf("frequencies hash to %s, want %s", got, want)
	}
}

func TestWidenHalf(t *testing.T) {
	for h, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24),
		0x7bff: 65504, 0x8000: 0, 0x7c00: float32(math.Inf(1)), 0xfc00: float32(math.Inf(-1))} {
		if got := widenHalf(h); got != want {
			t.Errorf("half %04x is %v, want %v", h, got, want)
		}
	}
	if x := widenHalf(0x7c01); x == x {
		t.Errorf("half 7c01 is %v, want NaN", x)
	}
}
