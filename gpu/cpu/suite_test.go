package cpu_test

import (
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/gputest"
)

// open opens a device or skips the test where the processor lacks the instructions.
func open(t testing.TB, o cpu.Options) gpu.Device {
	t.Helper()
	d, err := cpu.Open(o)
	if err != nil {
		t.Skip(err)
	}
	return d
}

func TestSuite(t *testing.T) {
	for _, o := range []cpu.Options{
		{Threads: 3, ISA: cpu.Go},
		{Threads: 1, ISA: cpu.Go, FloatActivations: true, TDP: true},
		{Threads: 1, ISA: cpu.AVX2}, {Threads: 3, ISA: cpu.AVX2},
		{Threads: 3, ISA: cpu.AVX2, FloatActivations: true},
		{Threads: 3, ISA: cpu.AVXVNNI}, {Threads: 1, ISA: cpu.AVXVNNI, FloatActivations: true},
		{Threads: 1, ISA: cpu.AVX512}, {Threads: 3, ISA: cpu.AVX512},
		{Threads: 3, ISA: cpu.AVX512, FloatActivations: true},
		{Threads: 3, ISA: cpu.AVX2, TDP: true},
		{Threads: 1, ISA: cpu.AVX512, TDP: true}, {Threads: 3, ISA: cpu.AVX512, TDP: true},
		{Threads: 3, ISA: cpu.AVX2, BF16Activations: true, FloatActivations: true},
		{Threads: 1, ISA: cpu.AVX512, BF16Activations: true},
		{Threads: 3, ISA: cpu.AVX512, BF16Activations: true},
	} {
		d, err := cpu.Open(o)
		if err != nil {
			t.Run(string(o.ISA), func(t *testing.T) { t.Skip(err) })
			continue
		}
		name := d.Name() + " " + d.Numerics()
		d.Close()
		t.Run(name, func(t *testing.T) {
			gputest.Run(t, func() gpu.Device { return open(t, o) })
		})
	}
}

func TestTwinPassesItsOwnSuite(t *testing.T) {
	gputest.Run(t, func() gpu.Device { return cpu.NewTwin(cpu.NumericsInt8) })
}
