package shipped

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/plugins/builtin"
)

// TestSoak: under every policy a machine that is short of pages and places serves whatever comes:
// every request gets its tokens and its end, and the policy decides every step.
func TestSoak(t *testing.T) {
	for _, name := range builtin.Names() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				if soak(t, name, seed); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func soak(t *testing.T, name string, seed uint64) {
	t.Helper()
	chance := rand.New(rand.NewPCG(seed, 4))
	m := machine{
		pages: 60 + chance.IntN(100), seqs: 2 + chance.IntN(8), budget: 64 + chance.IntN(400),
		preempt: chance.IntN(4), fixed: time.Millisecond, token: 50 * time.Microsecond,
		role: abi.RoleAll, link: &link{rate: 1 + chance.Int64N(40)},
		shares: engine.Shares{
			Tenants: []engine.Tenant{{Name: "a", WeightMilli: 3000}, {Name: "b", MaxSeqs: 2}},
			Classes: map[uint8]engine.Class{1: {
				Deadline: 300 * time.Millisecond, TokenGap: 20 * time.Millisecond,
			}},
		},
	}
	m.chunk = m.budget/(1+chance.IntN(3)) + 1
	var asks []ask
	for i := range 60 {
		prompt := slices.Concat(text(uint64(chance.IntN(4)), 16*chance.IntN(12)),
			text(uint64(100+i), 2+chance.IntN(200)))
		a := ask{
			at: time.Duration(chance.IntN(1500)) * time.Millisecond, prompt: prompt,
			output: 1 + chance.IntN(60), send: chance.IntN(5) == 0,
			hints: generation.Hints{
				Priority: int32(chance.IntN(5)) - 2, Class: uint8(chance.IntN(3)),
				Tenant: []string{"", "a", "b", "c"}[chance.IntN(4)],
			},
		}
		if chance.IntN(3) == 0 {
			a.hints.Deadline = time.Duration(1+chance.IntN(800)) * time.Millisecond
		}
		asks = append(asks, a)
	}
	m.serve(t, name, asks, nil)
}
