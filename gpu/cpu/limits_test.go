package cpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
)

// TestLimits: each limit is a number, and what one processor of our time does not exceed.
func TestLimits(t *testing.T) {
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVX2, cpu.Go} {
		d := open(t, cpu.Options{Threads: 2, ISA: isa, BF16Activations: true})
		l := d.(*cpu.Device).Limits(8 << 20)
		for name, x := range map[string]float64{"fma": l.FMA, "dot": l.Dot, "cache": l.Cache,
			"memory": l.Memory} {
			if !(x > 1e5) || math.IsInf(x, 0) || x > 1e14 {
				t.Errorf("%s: %s is %v a second", isa, name, x)
			}
		}
		if with := strings.Contains(d.Name(), "bf16"); with != (l.Pairs > 1e5) {
			t.Errorf("%s: pairs are %v a second", d.Name(), l.Pairs)
		}
		t.Logf("%s: %.0f GFLOP/s, %.0f GOP/s, cache %.1f, memory %.1f GB/s", isa, l.FMA/1e9,
			l.Dot/1e9, l.Cache/1e9, l.Memory/1e9)
		d.Close()
	}
}
