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
