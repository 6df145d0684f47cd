package plugins

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvrelay/engine/abi"
)

// BenchmarkDecide is one step of an engine with 1000 slots of which 64 changed: host and guest
// together.
func BenchmarkDecide(b *testing.B) {
	for _, name := range []string{"fcfs", "sjf-aging", "wat"} {
		for _, changed := range []int{2, 64, 1000} {
			b.Run(name+"/changed="+strconv.Itoa(changed), func(b *testing.B) {
				benchmarkDecide(b, moduleFor(b, name), changed)
			})
		}
	}
}

// moduleFor is a shipped module, or the one in text of the SDK.
func moduleFor(b *testing.B, name string) []byte {
	if name != "wat" {
		return shipped(b, name)
	}
	wasm, err := os.ReadFile(filepath.Join("..", "abi", "guest", "wat", "fcfs.wasm"))
	if err != nil {
		b.Fatal(err)
	}
	return wasm
}

// benchmarkDecide updates the given number of records and gives two more slots to new requests.
func benchmarkDecide(b *testing.B, wasm []byte, changed int) {
	p := newBenchWith(b, Options{FaultDir: b.TempDir()})
	p.use("it", wasm)
	p.mock.fill(1000)
	p.out = make([]abi.Decision, 0, 128)
	if _, err := p.decide(changed); err != nil {
		b.Fatal(err)
	}
	// The tables are made before, so that only deciding is measured.
	views := make([]abi.View, 16)
	for i := range views {
		p.mock.update(changed)
		views[i] = p.mock.view
		views[i].Records = slices.Clone(p.mock.view.Records)
		views[i].Changed = slices.Clone(p.mock.view.Changed)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := p.Decide(&views[i%len(views)], p.out); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(p.seen.last.Fuel), "fuel/op")
}

// nativeSort is a policy by Go in this process that keeps no order between steps: a full sort each
// step.
type nativeSort struct{ order []uint32 }

func (n *nativeSort) sort(records []abi.Record) {
	n.order = n.order[:0]
	for i := range records {
		if records[i].State&(abi.StateLive|abi.StateDecoding) == abi.StateLive {
			n.order = append(n.order, uint32(i))
		}
	}
	slices.SortFunc(n.order, func(x, y uint32) int {
		p, q := &records[x], &records[y]
		return cmp.Or(cmp.Compare(p.ArrivalNS, q.ArrivalNS), cmp.Compare(p.ID, q.ID))
	})
}

// BenchmarkNative is the answer by Go in this process.
func BenchmarkNative(b *testing.B) {
	m := newMock(128)
	m.fill(1000)
	n := nativeSort{order: make([]uint32, 0, 1000)}
	for b.Loop() {
		n.sort(m.view.Records)
	}
}

// BenchmarkFuel runs a guest's pol_decide on one table, metered and not, to show what metering
// costs. The host's part is left out.
func BenchmarkFuel(b *testing.B) {
	for _, name := range []string{"fcfs", "sjf-aging", "wat"} {
		for _, metered := range []bool{false, true} {
			kind := map[bool]string{false: "plain", true: "metered"}[metered]
			b.Run(name+"/"+kind, func(b *testing.B) {
				benchmarkFuel(b, moduleFor(b, name), metered)
			})
		}
	}
}

func benchmarkFuel(b *testing.B, wasm []byte, metered bool) {
	p := newBench(b)
	p.use("it", wasm)
	p.mock.fill(1000)
	if _, err := p.decide(64); err != nil {
		b.Fatal(err)
	}
	s := p.order.current
	if !metered {
		s = plainTwin(b, s, wasm)
	}
	header := uint64(s.regions[abi.BufferHeader].at)
	for b.Loop() {
		s.stack[0] = header
		if s.fuel != nil {
			s.fuel.Set(100_000_000)
		}
		if err := s.call(s.decide); err != nil {
			b.Fatal(err)
		}
	}
}

// plainTwin makes an instance of the module as it was built, with the memory of a sandbox, so that
// both decide the same table.
func plainTwin(b *testing.B, s *sandbox, wasm []byte) *sandbox {
	ctx := b.Context()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(256))
	b.Cleanup(func() { rt.Close(b.Context()) })
	m, err := rt.Instantiate(ctx, wasm)
	if err != nil {
		b.Fatal(err)
	}
	twin := &sandbox{g: s.g, instance: m, memory: m.ExportedMemory(abi.ExportMemory),
		decide: m.ExportedFunction(exportDecide), regions: s.regions}
	call := func(name string, args ...uint64) {
		if _, err := m.ExportedFunction(name).Call(ctx, args...); err != nil {
			b.Fatal(err)
		}
	}
	call(abi.ExportABIV1)
	for kind, r := range s.regions {
		call(abi.ExportBuffer, api.EncodeU32(uint32(kind)), uint64(r.size))
	}
	all, _ := s.memory.Read(0, s.memory.Size())
	if grow := s.memory.Size() - twin.memory.Size(); int32(grow) > 0 {
		twin.memory.Grow(grow / pageBytes)
	}
	twin.memory.Write(0, all)
	return twin
}

// update changes n records as a step of the engine does, without moving them in any order, and
// gives two other slots to new requests.
func (m *mock) update(n int) {
	size := len(m.view.Records)
	m.change(2)
	for i := range n {
		slot := (i*size/n + 1) % size
		r := &m.view.Records[slot]
		if r.State == 0 {
			continue
		}
		r.ServiceTokens++
		r.LastSchedNS = m.view.Header.NowNS
		r.CachedTokens = uint32(m.draw(uint64(r.PromptTokens)))
		m.view.Changed = append(m.view.Changed, uint32(slot))
	}
	slices.Sort(m.view.Changed)
	m.view.Changed = slices.Compact(m.view.Changed)
	m.count()
}
