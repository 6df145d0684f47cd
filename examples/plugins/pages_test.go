package shipped

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	pol "github.com/kvrelay/engine/abi/guest/go"
	"github.com/kvrelay/engine/host/scheduler"
)

// prophet is first come, first served, and foretells by the SDK's page estimator who gets in.
type prophet struct {
	told map[uint64]bool // by id: whether its chunk gets its pages
}

func (p *prophet) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	clear(p.told)
	pages := pol.PagesOf(&v.Header)
	var order []uint32
	for slot := range v.Records {
		r := &v.Records[slot]
		switch {
		case pol.Prefills(r):
			order = append(order, uint32(slot))
		case r.State&abi.StateDecoding != 0:
			pages.Free -= min(pages.Free, r.PagesNeeded)
		}
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Compare(v.Records[a].ID, v.Records[b].ID)
	})
	chunks, starts := pol.ChunksOf(&v.Header), v.Header.MaxAdmit
	for _, slot := range order {
		r := &v.Records[slot]
		waits := r.State&abi.StateRunning == 0
		if waits && starts == 0 {
			continue
		}
		// One after the other, so that a refusal leaves the others' chunks as they are.
		before := chunks
		tokens := chunks.Take(r.RemainingPrefill)
		if tokens == 0 || len(out) == int(v.Header.DecisionsCap) {
			break
		}
		p.told[r.ID] = pages.Take(r, tokens)
		switch {
		case !p.told[r.ID]:
			chunks = before
		case waits:
			starts--
		}
		out = append(out, pol.Run(slot, r, tokens))
	}
	return out, nil
}

// TestPagesAsTheHostCounts: what the estimator of the SDKs foretells is what the engine does, when
// pages are short.
func TestPagesAsTheHostCounts(t *testing.T) {
	refused, admitted := 0, 0
	for seed := range uint64(40) {
		chance := rand.New(rand.NewPCG(seed, 5))
		p := &prophet{told: map[uint64]bool{}}
		m := machine{
			pages: 40 + chance.IntN(60), seqs: 2 + chance.IntN(6), budget: 50 + chance.IntN(300),
			fixed: time.Millisecond, token: 50 * time.Microsecond, role: abi.RoleAll, native: p,
			cachePage: -1,
		}
		m.chunk = m.budget/(1+chance.IntN(3)) + 1
		var asks []ask
		for i := range 40 {
			asks = append(asks, ask{
				at:     time.Duration(chance.IntN(500)) * time.Millisecond,
				prompt: text(uint64(i), 2+chance.IntN(400)), output: 1 + chance.IntN(50),
			})
		}
		m.serve(t, "native", asks, func(r *run, plan *scheduler.Plan) {
			if len(plan.Preempted) > 0 || plan.Decision.Forced > 0 {
				return // Pages came back within the step, or some come first after a standstill.
			}
			ran := map[uint64]bool{}
			for _, c := range plan.Chunks {
				ran[uint64(c.ID)] = true
			}
			for id, told := range p.told {
				if told != ran[id] {
					t.Errorf("seed %d, step %d, request %d: foretold %v, ran %v", seed, plan.Step,
						id, told, ran[id])
				}
				if told {
					admitted++
				} else {
					refused++
				}
			}
		})
	}
	if refused < 100 || admitted < 100 {
		t.Errorf("%d refused and %d admitted: the test shows little", refused, admitted)
	}
}
