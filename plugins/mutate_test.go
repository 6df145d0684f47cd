package plugins

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// parent is a module that mutants are made of.
type parent struct {
	lang   string
	wasm   []byte
	module *lint.Module // of wasm, which nobody changes
	fuel   int64        // of its mutants, at load and for each decision
	share  int          // how often it is taken: what is slow to compile, more rarely
	near   int          // the functions from this one on are taken as often as all others together
}

// The fuel of a mutant: little, so that one that loops is soon over. What Go's runtime does before
// a module can decide takes more.
const (
	mutantFuel = 300_000
	goFuel     = 60_000_000
)

func newParent(t testing.TB, lang string, wasm []byte, share int) parent {
	m, problems := lint.Check(wasm, lint.Limits{})
	if m == nil {
		t.Fatalf("a %s module that mutants are made of: %v", lang, problems)
	}
	return parent{lang: lang, wasm: wasm, module: m, fuel: mutantFuel, share: share}
}

// seeds are the modules that mutants are made of: several of each language, but for Go's.
func seeds(t testing.TB) []parent {
	var all []parent
	for _, s := range []struct{ lang, name string }{{"c", "fcfs"}, {"c", "sarathi"},
		{"rust", "sjf-aging"}, {"rust", "vtc"}, {"zig", "send-aware"}, {"zig", "slo-chunk"},
		{"assemblyscript", "tenant-quota"}} {
		all = append(all, newParent(t, s.lang, shipped(t, s.name), 2))
		if s.lang == "c" {
			all[len(all)-1].share = 8
		}
	}
	for _, name := range []string{"waiting_only", "over_budget", "greets", "memory_grab", "aborts",
		"remembers", "ones"} {
		all = append(all, newParent(t, "wat", guestFile(t, name), 8))
	}
	wat, err := os.ReadFile(filepath.Join("..", "abi", "guest", "wat", "fcfs.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, newParent(t, "wat", wat, 8))
}

// goSeed is a module of Go's compiler, which builds it: it is too large to be kept. A file that is
// there is taken as it is.
func goSeed(t testing.TB, file string) parent {
	if _, err := os.Stat(file); err != nil {
		build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath",
			"-ldflags=-s -w", "-o", file, "./testdata/goguest")
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building the Go module: %v\n%s", err, text)
		}
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := newParent(t, "go", wasm, 1)
	p.fuel = goFuel
	// The linker puts what a package needs before it: behind the first of the ABI's functions are
	// the SDK and the policy, before it the runtime, of which most never runs.
	p.near = len(p.module.Bodies)
	for _, e := range p.module.Exports {
		if e.Kind == lint.ExportFunction && strings.HasPrefix(e.Name, "pol_") {
			p.near = min(p.near, int(e.Index)-len(p.module.Imports))
		}
	}
	return p
}

// alike are ranges of instructions that take and give the same types: comparisons and arithmetic
// of integers and floats, loads, stores.
var alike = [][2]byte{{0x46, 0x4f}, {0x51, 0x5a}, {0x5b, 0x60}, {0x61, 0x66}, {0x6a, 0x78},
	{0x7c, 0x8a}, {0x8b, 0x91}, {0x92, 0x98}, {0x99, 0x9f}, {0xa0, 0xa6}, {0x2c, 0x2f},
	{0x30, 0x35}, {0x3a, 0x3b}, {0x3c, 0x3e}}

// mutate changes one to four instructions of a copy of a module: an operation becomes another of
// its type, a constant or index another, and now and then a byte any byte. Lengths stay as they
// are, so that many mutants are valid.
func (p *parent) mutate(chance *rand.Rand) []byte {
	out := slices.Clone(p.wasm)
	changes := 1
	if chance.IntN(2) == 0 {
		changes += chance.IntN(4)
	}
	for changes > 0 {
		from := 0
		if p.near > 0 && p.near < len(p.module.Bodies) && chance.IntN(2) == 0 {
			from = p.near
		}
		body := p.module.Bodies[from+chance.IntN(len(p.module.Bodies)-from)]
		var list []lint.Instruction
		lint.Instructions(body.Code, func(in lint.Instruction) { list = append(list, in) })
		in := list[chance.IntN(len(list))]
		raw, before := out[body.Offset+in.At:body.Offset+in.End], body.Code[in.At:in.End]
		if !slices.Equal(raw, before) {
			continue // It was changed already.
		}
		if chance.IntN(16) == 0 {
			raw[chance.IntN(len(raw))] = byte(chance.IntN(256))
		} else {
			disturb(raw, chance, func() []byte {
				peer := list[chance.IntN(len(list))]
				return body.Code[peer.At:peer.End]
			})
		}
		if !slices.Equal(raw, before) {
			changes--
		}
	}
	return out
}

// The operations that disturb knows apart.
const (
	opConst32, opConst64 = 0x41, 0x42
	opLoads, opStores    = 0x28, 0x3e
)

// draws is how often a peer is looked for.
const draws = 16

// disturb changes one instruction into another that is often valid, or leaves it; peer draws an
// instruction of the same function.
func disturb(raw []byte, chance *rand.Rand, peer func() []byte) {
	kin := slices.IndexFunc(alike, func(r [2]byte) bool { return raw[0] >= r[0] && raw[0] <= r[1] })
	memory := raw[0] >= opLoads && raw[0] <= opStores
	switch {
	case raw[0] == opConst32 || raw[0] == opConst64:
		i := 1 + chance.IntN(len(raw)-1)
		raw[i] = raw[i]&0x80 | byte(chance.IntN(0x80))
	case memory && chance.IntN(2) == 0: // The offset, behind the alignment.
		i := 2 + chance.IntN(len(raw)-2)
		raw[i] = raw[i]&0x80 | byte(chance.IntN(0x80))
	case kin >= 0:
		r := alike[kin]
		raw[0] = r[0] + byte(chance.IntN(int(r[1]-r[0])+1))
	case len(raw) > 1:
		for range draws {
			if p := peer(); p[0] == raw[0] && len(p) == len(raw) {
				copy(raw, p)
				return
			}
		}
		if chance.IntN(draws) == 0 {
			raw[1+chance.IntN(len(raw)-1)] ^= byte(1 << chance.IntN(4))
		}
	}
}

// scatter changes one to eight bytes anywhere in a copy of a module.
func (p *parent) scatter(chance *rand.Rand) []byte {
	out := slices.Clone(p.wasm)
	for range 1 + chance.IntN(8) {
		out[chance.IntN(len(out))] = byte(chance.IntN(256))
	}
	return out
}

// mutant is one changed module.
type mutant struct {
	wasm  []byte
	lang  string
	bytes bool // bytes were changed and not instructions
	fuel  int64
	apart bool // it is compiled in another process, as an engine does
}

// kitchen makes mutants by their number.
type kitchen struct {
	seed    uint64
	from    []parent
	large   *parent // Go's module, of which one in rare is made
	perByte int     // so many in a hundred change bytes
}

// One mutant in rare is Go's, which takes a thousand times as long as others to compile; it is a
// prime, so that every part gets some. One in oneGo of those is compiled in another process, and
// one in oneElse of the others whose instructions were changed.
const (
	rare    = 541
	oneGo   = 20
	oneElse = 100
)

// make makes one mutant: the same number, the same mutant.
func (k *kitchen) make(i int) mutant {
	chance := rand.New(rand.NewPCG(k.seed, uint64(i)))
	if k.large != nil && i%rare == 0 {
		p := k.large
		return mutant{wasm: p.mutate(chance), lang: p.lang, fuel: p.fuel,
			apart: chance.IntN(oneGo) == 0}
	}
	shares := 0
	for _, p := range k.from {
		shares += p.share
	}
	at, p := chance.IntN(shares), 0
	for ; at >= k.from[p].share; p++ {
		at -= k.from[p].share
	}
	m := mutant{lang: k.from[p].lang, fuel: k.from[p].fuel}
	if m.bytes = chance.IntN(100) < k.perByte; m.bytes {
		m.wasm = k.from[p].scatter(chance)
	} else {
		m.wasm, m.apart = k.from[p].mutate(chance), chance.IntN(oneElse) == 0
	}
	return m
}

// kindOf says in few words what stopped a mutant: mutants of one kind are alike. What a guest says
// itself is not part of it.
func kindOf(f *Fault) string {
	kind := string(f.Class)
	if f.Call != "" {
		kind += " in " + f.Call
	}
	for _, reason := range []string{"out of bounds memory access", "integer divide by zero",
		"integer overflow", "unreachable", "invalid table access", "indirect call type mismatch",
		"invalid conversion to integer", "the fuel was used up", "stack overflow", "abort: ",
		"exited with", "lie outside the memory", "lies outside the memory", "overlaps region",
		"not a multiple of 16", "refused", "the memory grew", "the runtime failed",
		"instantiating", "it returned"} {
		if strings.Contains(f.Detail, reason) {
			kind += ", " + strings.TrimSuffix(reason, ": ")
			break
		}
	}
	if code, _, ok := strings.Cut(f.Detail, ": "); ok && f.Class == abi.FaultLoadLint {
		kind += ", " + code
	}
	return kind
}
