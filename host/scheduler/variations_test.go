package scheduler

import (
	"time"

	"github.com/kvrelay/engine/abi"
)

// variation changes what one field is made of. plain is the world it is compared with, where that
// is not the plain one.
type variation struct{ vary, plain func(*fieldWorld) }

func vary(f func(*fieldWorld)) variation { return variation{vary: f} }

// request varies B as it is submitted.
func request(f func(*Request)) variation {
	return vary(func(w *fieldWorld) { f(&w.requests[1]) })
}

// option varies what the scheduler is made with, cost what the engine measures.
func option(f func(*Options)) variation { return vary(func(w *fieldWorld) { f(&w.o) }) }

func cost(f func(*StepCosts)) variation { return vary(func(w *fieldWorld) { f(&w.costs) }) }

// after varies what happens once both wait.
func after(f func(*fieldWorld)) variation {
	return vary(func(w *fieldWorld) { w.before = func() { f(w) } })
}

// ran lets a request compute tokens first.
func ran(id uint64, tokens ...uint32) variation {
	return after(func(w *fieldWorld) {
		for _, n := range tokens {
			w.lead(map[uint64]uint32{id: n})
		}
	})
}

// ownTenants gives A and B a tenant each, peers a destination each.
func ownTenants(w *fieldWorld) { w.requests[0].Tenant, w.requests[1].Tenant = 1, 2 }

func ownPeers(w *fieldWorld) {
	w.requests[0].Peer, w.requests[1].Peer = 1, 2
	w.requests[0].Kind, w.requests[1].Kind = RemoteSend, RemoteSend
}

// tenants is a variation among requests of different tenants.
func tenants(f func(*fieldWorld)) variation {
	return variation{plain: ownTenants, vary: func(w *fieldWorld) {
		ownTenants(w)
		w.before = func() { f(w) }
	}}
}

// peer is a variation of B's destination.
func peer(f func(*Peer)) variation {
	return variation{plain: func(w *fieldWorld) {
		ownPeers(w)
		w.requests[1].Peer = 1
	}, vary: func(w *fieldWorld) {
		ownPeers(w)
		f(&w.costs.Peers[1])
	}}
}

// decoding has a third request decode, of a stream that wants its tokens at a pace.
func decoding(gap time.Duration) func(*fieldWorld) {
	return func(w *fieldWorld) {
		w.before = func() { w.third(Request{TokenGap: gap}, 6) }
	}
}

func fieldVariations() map[string]variation {
	all := map[string]variation{}
	for _, part := range []map[string]variation{
		headerOptions(), headerCounts(), requestFields(), progressFields(), tableFields(),
	} {
		for name, v := range part {
			all[name] = v
		}
	}
	return all
}

func headerOptions() map[string]variation {
	return map[string]variation{
		"Header.TotalPages":       option(func(o *Options) { o.Pages = 41 }),
		"Header.PageTokens":       option(func(o *Options) { o.PageSize = 8 }),
		"Header.TokenBudget":      option(func(o *Options) { o.TokenBudget = 33 }),
		"Header.ChunkMax":         option(func(o *Options) { o.ChunkMax = 12 }),
		"Header.ChunkAlign":       option(func(o *Options) { o.ChunkAlign = 4 }),
		"Header.MaxSeqs":          option(func(o *Options) { o.MaxSeqs = 9 }),
		"Header.MaxAdmit":         option(func(o *Options) { o.MaxAdmit = 1 }),
		"Header.ReservePages":     option(func(o *Options) { o.ReservePages = 2 }),
		"Header.DecisionsCap":     option(func(o *Options) { o.MaxPreempt = 3 }),
		"Header.Seed":             option(func(o *Options) { o.Seed = 4 }),
		"Header.Role":             option(func(o *Options) { o.Role = abi.RolePrefill }),
		"Header.KVBytesPerToken":  option(func(o *Options) { o.KVBytesPerToken = 200 }),
		"Header.LastStepUS":       cost(func(c *StepCosts) { c.LastStep = time.Millisecond }),
		"Header.CostFixedUS":      cost(func(c *StepCosts) { c.Fixed = time.Millisecond }),
		"Header.CostTokenNS":      cost(func(c *StepCosts) { c.PerToken = 5 }),
		"Header.CostCtxPS":        cost(func(c *StepCosts) { c.PerContextTokenPS = 5 }),
		"Header.SendBacklogBytes": cost(func(c *StepCosts) { c.SendBacklogBytes = 5 }),
		"Header.LinkBytesPerUS":   cost(func(c *StepCosts) { c.LinkBytesPerUS = 5 }),
		"Header.NPeers": cost(func(c *StepCosts) {
			c.Peers = append(c.Peers, Peer{Index: 3})
		}),
	}
}

func headerCounts() map[string]variation {
	waits := after(func(w *fieldWorld) { w.third(Request{}, 0) })
	holds := after(func(w *fieldWorld) { w.third(Request{}, 4) })
	return map[string]variation{
		"Header.Step":         after(func(w *fieldWorld) { w.lead(nil) }),
		"Header.NChanged":     after(func(w *fieldWorld) { w.lead(nil) }),
		"Header.NowNS":        after(func(w *fieldWorld) { w.now += time.Second }),
		"Header.Flags":        after(func(w *fieldWorld) { w.s.SetDraining(true) }),
		"Header.NTenants":     after(func(w *fieldWorld) { w.s.SetTenant(4, 0, 0) }),
		"Header.NSlots":       waits,
		"Header.NWaiting":     waits,
		"Header.NRunning":     holds,
		"Header.FreePages":    holds,
		"Header.DecodeTokens": vary(decoding(0)),
		"Header.DecodeDueNS": {
			plain: decoding(0), vary: decoding(time.Second),
		},
	}
}

func requestFields() map[string]variation {
	return map[string]variation{
		"Record.ID":              request(func(r *Request) { r.ID = 5 }),
		"Record.ArrivalNS":       request(func(r *Request) { r.Arrival = 9 }),
		"Record.DeadlineNS":      request(func(r *Request) { r.Deadline = 9 }),
		"Record.Priority":        request(func(r *Request) { r.Priority = 1 }),
		"Record.Tenant":          request(func(r *Request) { r.Tenant = 1 }),
		"Record.PromptTokens":    request(func(r *Request) { r.Prompt = append(r.Prompt, 1) }),
		"Record.MaxNew":          request(func(r *Request) { r.MaxNew = 5 }),
		"Record.PredictedOutput": request(func(r *Request) { r.PredictedOutput = 9 }),
		"Record.Group":           request(func(r *Request) { r.Group = 9 }),
		"Record.UserTag":         request(func(r *Request) { r.UserTag = 9 }),
		"Record.Class":           request(func(r *Request) { r.Class = abi.ClassBatch }),
		"Record.Peer":            request(func(r *Request) { r.Kind, r.Peer = RemoteSend, 2 }),
		"Record.Kind":            request(func(r *Request) { r.Kind = RemoteSend }),
		"Record.PrefixHash": vary(func(w *fieldWorld) {
			s := Scheduler{options: w.o}
			a, b := w.requests[0].Prompt, w.requests[1].Prompt
			for s.prefixHash(&Request{Prompt: b}) <= s.prefixHash(&Request{Prompt: a}) {
				b[3]++
			}
		}),
	}
}

func progressFields() map[string]variation {
	return map[string]variation{
		"Record.State":            ran(1, 4),
		"Record.PagesHeld":        ran(1, 4),
		"Record.LastSchedNS":      ran(1, 4),
		"Record.ServiceTokens":    ran(1, 4),
		"Record.RemainingPrefill": ran(2, 4),
		"Record.PagesNeeded":      ran(2, 4),
		"Record.Generated":        ran(1, 8, 8),
		"Record.FirstTokenNS":     ran(1, 8, 8),
		"Record.CachedTokens": vary(func(w *fieldWorld) {
			w.requests[0].Prompt = []int32{50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61}
			w.before = func() {
				prompt := w.requests[1].Prompt[:8]
				w.third(Request{Prompt: append([]int32{}, prompt...)}, 8)
				w.lead(nil)
			}
		}),
		"Record.PreemptCount": after(func(w *fieldWorld) {
			w.lead(map[uint64]uint32{1: 4})
			w.s.preempt(w.s.byID[1], abi.PreemptedMemory)
		}),
		"Record.LeaseMSLeft": vary(func(w *fieldWorld) {
			w.requests[1].Kind = PrepareReceive
			w.before = func() {
				w.lead(map[uint64]uint32{1: 12})
				w.s.SetLease(1, time.Second)
			}
		}),
	}
}

func tableFields() map[string]variation {
	return map[string]variation{
		"Tenant.Index":         {vary: ownTenants},
		"Tenant.WeightMilli":   tenants(func(w *fieldWorld) { w.s.SetTenant(2, 1001, 0) }),
		"Tenant.MaxSeqs":       tenants(func(w *fieldWorld) { w.s.SetTenant(2, 0, 3) }),
		"Tenant.ServiceTokens": tenants(func(w *fieldWorld) { w.third(Request{Tenant: 2}, 4) }),
		"Tenant.Running":       tenants(func(w *fieldWorld) { w.third(Request{Tenant: 2}, 4) }),
		"Tenant.Waiting":       tenants(func(w *fieldWorld) { w.third(Request{Tenant: 2}, 0) }),

		"Peer.Index":          peer(func(*Peer) {}),
		"Peer.State":          peer(func(p *Peer) { p.State = 1 }),
		"Peer.BacklogBytes":   peer(func(p *Peer) { p.BacklogBytes = 5 }),
		"Peer.LinkBytesPerUS": peer(func(p *Peer) { p.LinkBytesPerUS = 5 }),
		"Peer.FreePages":      peer(func(p *Peer) { p.FreePages = 5 }),
		"Peer.Running":        peer(func(p *Peer) { p.Running = 5 }),
	}
}
