package cpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
)

// TestLimits: each limit is a number, and what one processor of our time does not exceed.
func TestLimits(t *testing.T) {
	for _, isa := range []cpu.ISA{cpu.AVX512, cpu.AVXVNNI, cpu.AVX2, cpu.Go} {
		t.Run(string(isa), func(t *testing.T) {
			d := open(t, cpu.Options{Threads: 2, ISA: isa, BF16Activations: true})
			defer d.Close()
			checkLimits(t, d.(*cpu.Device))
		})
	}
}

func checkLimits(t *testing.T, d *cpu.Device) {
	l := d.Limits(8 << 20)
	for name, x := range map[string]float64{"fma": l.FMA, "dot": l.Dot, "cache": l.Cache,
		"memory": l.Memory} {
		if !(x > 1e5) || math.IsInf(x, 0) || x > 1e14 {
			t.Errorf("%s is %v a second", name, x)
		}
	}
	if with := strings.Contains(d.Name(), "bf16"); with != (l.Pairs > 1e5) {
		t.Errorf("%s: pairs are %v a second", d.Name(), l.Pairs)
	}
	if small := d.ISA() == cpu.AVX2; small != (l.Small > 1e5) {
		t.Errorf("%s: products of small weights are %v a second", d.Name(), l.Small)
	}
	t.Logf("%.0f GFLOP/s, %.0f GOP/s, of small weights %.0f, cache %.1f, memory %.1f GB/s",
		l.FMA/1e9, l.Dot/1e9, l.Small/1e9, l.Cache/1e9, l.Memory/1e9)
}
