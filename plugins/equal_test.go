package plugins

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/builtin"
)

// tablesEnv sets on how many random tables TestEqualDecisions compares each module.
const tablesEnv = "ENGINE_TEST_TABLES"

// random brings the mock to another table: any size, any number of changes, any limits.
func (m *mock) random(chance *rand.Rand, slots int) {
	h := &m.view.Header
	h.Flags = 0
	if before := len(m.view.Records); chance.IntN(20) == 0 || before == 0 {
		m.fill(chance.IntN(slots + 1))
		for len(m.view.Records) < before { // Slots that were used stay below n_slots, freed.
			m.view.Records = append(m.view.Records, abi.Record{})
		}
		m.count()
		h.Flags = abi.FlagResync
	} else {
		m.change(chance.IntN(1 + min(40, len(m.view.Records))))
	}
	for i := range m.view.Records {
		if r := &m.view.Records[i]; r.State != 0 && slices.Contains(m.view.Changed, uint32(i)) {
			r.Priority, r.Class = int32(chance.IntN(7)-3), uint8(chance.IntN(3))
			r.Tenant, r.Peer = uint32(chance.IntN(8)), uint16(chance.IntN(2))
			if chance.IntN(2) == 0 {
				r.DeadlineNS = h.NowNS + chance.Int64N(1e10) - 1e9
			}
			r.CachedTokens = uint32(chance.IntN(int(r.PromptTokens) + 1))
			r.ServiceTokens = chance.Uint64N(1 << 20)
		}
	}
	h.TokenBudget = []uint32{0, 1, 64, 2048, 8192, 1<<32 - 1}[chance.IntN(6)]
	h.ChunkMax = []uint32{1, 7, 512, 1<<32 - 1}[chance.IntN(4)]
	h.ChunkAlign = []uint32{0, 1, 16, 100}[chance.IntN(4)]
	h.MaxAdmit, h.FreePages = uint32(chance.IntN(64)), uint32(chance.IntN(4096))
	h.SendBacklogBytes, h.LinkBytesPerUS = chance.Uint64N(1<<32), uint32(chance.IntN(2000))
	h.CostFixedUS, h.CostTokenNS = uint32(chance.IntN(5000)), uint32(chance.IntN(100_000))
	h.CostCtxPS = uint32(chance.IntN(1000))
	h.DecodeDueNS = h.NowNS + chance.Int64N(1e8) - 1e7
	h.NowNS += chance.Int64N(1e9)
	m.happen()
}

// twins are three copies of one module that are shown the same: two compiled, one interpreted.
type twins struct{ first, second, interpreted *sandbox }

// open loads the twins.
func openTwins(t *testing.T, wasm []byte, slots int) twins {
	box := func(interpreter bool) *sandbox {
		l := loader{slots: slots, decisions: 64, offered: everything, log: silence(),
			drop: func(string, int) {}, interpreter: interpreter}
		g := l.prepare(Spec{Wasm: wasm})
		t.Cleanup(g.close)
		if f := g.check(wasm); f != nil {
			t.Fatal(f)
		}
		if f := g.build(context.Background(), &l); f != nil {
			t.Fatal(f)
		}
		s, f := g.newSandbox()
		if f != nil {
			t.Fatal(f)
		}
		g.swapped = true
		return s
	}
	return twins{box(false), box(false), box(true)}
}

// same lets all three decide a step and wants one answer, one fuel, one fault.
func (w twins) same(t *testing.T, v *abi.View, step int) *Fault {
	t.Helper()
	var want []abi.Decision
	var wanted answer
	for i, s := range []*sandbox{w.first, w.second, w.interpreted} {
		s.level = abi.LogOff
		out, a, err := s.step(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want, wanted = out, a
			continue
		}
		if !slices.Equal(out, want) || a.fuel != wanted.fuel || a.observed != wanted.observed ||
			(a.fault == nil) != (wanted.fault == nil) {
			t.Fatalf("table %d, copy %d: %d decisions, fuel %d, fault %v; the first has %d, %d, %v",
				step, i, len(out), a.fuel, a.fault, len(want), wanted.fuel, wanted.fault)
		}
	}
	return wanted.fault
}

// TestEqualDecisions: over random tables two runs of one input are equal, and so are compiler and
// interpreter, for every shipped module, alone and as the second of two; none faults, and the
// judge finds nothing.
func TestEqualDecisions(t *testing.T) {
	tables := 60
	if asked, err := strconv.Atoi(os.Getenv(tablesEnv)); err == nil {
		tables = asked
	}
	const slots = 200
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 0))
			w := openTwins(t, shipped(t, name), slots)
			m, j := newMock(64), abi.Judge{}
			m.cuts = w.first.g.about.Flags&abi.DescSelects == 0
			for i := range tables {
				m.random(chance, slots)
				if m.cuts {
					m.preset()
				}
				if f := w.same(t, &m.view, i); f != nil {
					t.Fatalf("table %d: %v", i, f)
				}
				out, _ := w.first.read(w.first.answered, nil)
				err := j.Check(&m.view, out, w.first.granted)
				if m.cuts && len(m.view.Preset) > 0 {
					err = judgeCut(&j, &m.view, out)
				}
				if err != nil {
					t.Fatalf("table %d: %v", i, err)
				}
			}
			t.Logf("%d tables: no difference", tables)
		})
	}
}

// TestLongQueues: every shipped module decides a queue of 10,000 within two thirds of its fuel,
// seen anew and with changes. The fuel is not what a clock says of this moment, which under the
// race detector or with load beside it is little, but what a slow machine that is quiet gives.
func TestLongQueues(t *testing.T) {
	const slots, calibrated = 10_000, 16_000_000
	for _, name := range builtin.Names() {
		l := loader{slots: slots, decisions: 256, offered: everything, log: silence(),
			drop: func(string, int) {}}
		g, f := l.load(context.Background(), Spec{Name: name, Wasm: shipped(t, name)})
		if f != nil {
			t.Fatal(f)
		}
		g.swapped, g.calibrated = true, calibrated
		m := newMock(256)
		m.cuts = g.about.Flags&abi.DescSelects == 0
		for _, turn := range []func(){func() { m.fill(slots) }, func() { m.change(64) },
			func() { m.change(slots) }, func() { m.change(1) }} {
			turn()
			m.happen()
			if m.cuts {
				m.preset()
			}
			_, a, err := g.current.step(&m.view, nil)
			if err != nil || a.fault != nil {
				t.Fatalf("%s: %v %v", name, err, a.fault)
			}
			t.Logf("%-16s %5d changed: fuel %8d, %4.1f %% of %d", name, len(m.view.Changed), a.fuel,
				100*float64(a.fuel)/float64(a.limit), a.limit)
			if 3*a.fuel > 2*a.limit {
				t.Errorf("%s: fuel %d of %d with %d changed", name, a.fuel, a.limit,
					len(m.view.Changed))
			}
		}
		g.close()
	}
}
