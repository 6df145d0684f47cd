package plugins

import (
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/abi"
)

// costRounds is how many rounds are measured at least.
const costRounds = 200

// BenchmarkCost measures in turns, on one table, and reports medians: a step with 1,000 slots of
// which 64 changed; a step that sorts all 1,000 anew, against the same by Go in this process; and
// what the meter costs, by the same call with it and without. Inputs are kept for replay meanwhile.
func BenchmarkCost(b *testing.B) {
	for _, name := range []string{"fcfs", "sjf-aging"} { // C, Rust
		b.Run(name, func(b *testing.B) { benchmarkCost(b, shipped(b, name)) })
	}
}

func benchmarkCost(b *testing.B, wasm []byte) {
	p := newBenchWith(b, Options{FaultDir: b.TempDir()})
	p.use("it", wasm)
	p.mock.fill(1000)
	p.out = make([]abi.Decision, 0, 128)
	n := nativeSort{order: make([]uint32, 0, 1000)}
	step := func(anew bool) time.Duration {
		p.mock.update(64)
		if anew {
			p.order.current.stale = true
		}
		begin := time.Now()
		if _, err := p.Decide(&p.mock.view, p.out); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	step(false)
	metered := p.order.current
	plain := plainTwin(b, metered, wasm)
	var steps, sorts, natives, with, without []time.Duration
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := p.Decide(&p.mock.view, p.out); err != nil {
			b.Fatal(err)
		}
	})
	for i := 0; b.Loop() || i < costRounds; i++ {
		steps = append(steps, step(false))
		sorts = append(sorts, step(true))
		begin := time.Now()
		n.sort(p.mock.view.Records)
		natives = append(natives, time.Since(begin))
		with = append(with, decideOnly(b, metered))
		without = append(without, decideOnly(b, plain))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(steps).Nanoseconds()), "step-ns")
	b.ReportMetric(float64(median(sorts))/float64(median(natives)), "sort/native")
	b.ReportMetric(float64(median(with))/float64(median(without)), "metered/plain")
	b.ReportMetric(allocations, "allocs/step")
}

// decideOnly is one pol_decide on the table as it lies in the guest's memory, with a resync so that
// it sorts.
func decideOnly(b *testing.B, s *sandbox) time.Duration {
	header, _ := s.bytes(abi.BufferHeader)
	var h abi.Header
	if err := h.Decode(header); err != nil {
		b.Fatal(err)
	}
	h.Flags |= abi.FlagResync
	h.Encode(header)
	if s.fuel != nil {
		s.fuel.Set(100_000_000)
	}
	s.stack[0] = api.EncodeU32(s.regions[abi.BufferHeader].at)
	begin := time.Now()
	if err := s.call(s.decide); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
