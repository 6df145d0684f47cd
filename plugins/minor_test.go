package plugins

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/builtin"
)

// frozen are the first modules that were ever built, and are never built again: a host of any minor
// version of ABI 1 must run them.
var frozen = map[string]string{
	"fcfs-c":         "a5a7e1898373e150651bb5291258f807f6b02e75b5a43b813766e59957284cbc",
	"fcfs-wat":       "582091f2fd6ae86f7462a1011a8a7f503674a22b9a47f4b24add351e200579de",
	"sjf-aging-rust": "84e1e7c673028ed6afab819a688e07abc8efa5399756674d61c7298574ac1935",
}

// TestFirstModulesKeepWorking: they load, pass the suite of every load, and decide as they did: by
// the rule of fcfs, which is told to the bit in abi/SPEC.md.
func TestFirstModulesKeepWorking(t *testing.T) {
	for name, digest := range frozen {
		wasm := frozenModule(t, name)
		if sum := sha256.Sum256(wasm); hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s is not what it was: %x", name, sum)
		}
		b := newBench(t)
		b.use(name, wasm)
		for step := range 200 {
			out, err := b.decide(step % 7)
			if err != nil {
				t.Fatalf("%s, step %d: %v", name, step, err)
			}
			if err := Judge(&b.mock.view, out); err != nil {
				t.Fatalf("%s, step %d: %v", name, step, err)
			}
			if !strings.HasPrefix(name, "fcfs") {
				continue
			}
			if want := firstCome(&b.mock.view); !slices.Equal(out, want) {
				t.Fatalf("%s, step %d: %v, want %v", name, step, out, want)
			}
		}
	}
}

func frozenModule(t *testing.T, name string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("testdata", "v1.0", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// firstCome is the rule of fcfs, SPEC.md section 13.
func firstCome(v *abi.View) (out []abi.Decision) {
	var slots []uint32
	for slot, r := range v.Records {
		if r.State&(abi.StateLive|abi.StateDecoding) == abi.StateLive && r.RemainingPrefill > 0 {
			slots = append(slots, uint32(slot))
		}
	}
	slices.SortFunc(slots, func(i, j uint32) int {
		a, b := v.Records[i], v.Records[j]
		switch {
		case a.ArrivalNS != b.ArrivalNS:
			return int(a.ArrivalNS - b.ArrivalNS)
		default:
			return int(a.ID) - int(b.ID)
		}
	})
	h := v.Header
	left := h.TokenBudget - min(h.DecodeTokens, h.TokenBudget)
	for _, slot := range slots {
		r := v.Records[slot]
		tokens := min(r.RemainingPrefill, h.ChunkMax, left)
		if tokens < r.RemainingPrefill && h.ChunkAlign > 1 {
			tokens -= tokens % h.ChunkAlign
		}
		if tokens == 0 || len(out) == int(h.DecisionsCap) {
			break
		}
		out = append(out, abi.Decision{Slot: slot, Tokens: tokens, IDLow: uint32(r.ID)})
		left -= tokens
	}
	return out
}

// What a host of a later minor version may do: longer records and headers, and flags, state bits
// and kinds that version 1.0 does not know. Decisions are the guest's to write, so they stay as
// long as in the version that the guest was built for.
const (
	laterStride = abi.RecordSize + 32
	laterHeader = abi.HeaderSize + 64
	laterBit    = 1 << 20
	laterKind   = 9
)

// TestLaterHosts shows every shipped module, and the first ones, a table as a host of a later minor
// version would: they decide as they do of the same table today.
func TestLaterHosts(t *testing.T) {
	modules := map[string][]byte{}
	for name := range frozen {
		modules[name] = frozenModule(t, name)
	}
	for _, name := range builtin.Names() {
		modules["builtin:"+name], _ = builtin.Module(name)
	}
	for name, wasm := range modules {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.use(name, wasm)
			b.mock.fill(60)
			now, f := b.order.newSandbox()
			if f != nil {
				t.Fatal(f)
			}
			defer now.close()
			later, f := b.order.newSandbox()
			if f != nil {
				t.Fatal(f)
			}
			defer later.close()
			now.stale = true
			want, a, err := now.step(&b.mock.view, nil)
			if err != nil || a.fault != nil {
				t.Fatal(err, a.fault)
			}
			if got := later.stepLater(t, &b.mock.view); !slices.Equal(got, want) {
				t.Errorf("of a later host's table: %v\nof today's: %v", got, want)
			}
			if len(want) == 0 {
				t.Error("it decided nothing")
			}
		})
	}
}

// stepLater is step for a table as a later host shows it.
func (s *sandbox) stepLater(t *testing.T, v *abi.View) []abi.Decision {
	t.Helper()
	records, _ := s.bytes(abi.BufferRecords)
	changed, _ := s.bytes(abi.BufferChanged)
	header, _ := s.bytes(abi.BufferHeader)
	h, live := v.Header, 0
	for slot, r := range v.Records {
		at := records[slot*laterStride:][:laterStride]
		for i := range at {
			at[i] = 0xAA
		}
		if r.State != 0 {
			r.State |= laterBit
			binary.LittleEndian.PutUint32(changed[4*live:], uint32(slot))
			live++
		}
		if slot%5 == 0 {
			r.Kind = laterKind
		}
		r.Encode(at)
	}
	h.Flags |= abi.FlagResync | abi.FlagSwap | laterBit
	if err := s.showTenants(v.Tenants, true, &h); err != nil {
		t.Fatal(err)
	}
	if err := s.showPeers(v.Peers, &h); err != nil {
		t.Fatal(err)
	}
	h.Magic, h.Minor, h.HeaderSize = abi.Magic, abi.Minor+7, laterHeader
	h.RecordStride, h.RecordsPtr = laterStride, s.regions[abi.BufferRecords].at
	h.NChanged, h.ChangedPtr = uint32(live), s.regions[abi.BufferChanged].at
	h.DecisionsPtr, h.DecisionStride = s.regions[abi.BufferDecisions].at, abi.DecisionSize
	h.DecisionsCap = min(h.DecisionsCap, s.regions[abi.BufferDecisions].size/abi.DecisionSize)
	h.Encode(header)
	s.console.begin(h.NowNS)
	s.fuel.Set(uint64(s.g.decideFuel(live)))
	s.stack[0] = uint64(s.regions[abi.BufferHeader].at)
	if err := s.call(s.decide); err != nil {
		t.Fatal(err)
	}
	n := int(int32(s.stack[0]))
	if n < 0 || n > int(h.DecisionsCap) {
		t.Fatalf("%d decisions", n)
	}
	answer, _ := s.bytes(abi.BufferDecisions)
	out := make([]abi.Decision, n)
	for i := range out {
		if err := out[i].Decode(answer[i*abi.DecisionSize:]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
