package shipped

import (
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// plain is a machine with room for everything: 100 us a token, 1 ms a step.
func plain() machine {
	return machine{
		pages: 4000, seqs: 32, budget: 512, preempt: 8, fixed: time.Millisecond,
		token: 100 * time.Microsecond, role: abi.RoleAll,
	}
}

// TestShortOvertakes: sjf-aging computes a short prompt before the rest of a long one.
func TestShortOvertakes(t *testing.T) {
	asks := []ask{
		{prompt: text(1, 6000), output: 3},
		{at: time.Millisecond, prompt: text(2, 40), output: 3},
	}
	overtakes := func(r *run) bool { return r.clients[1].times[0] < r.clients[0].times[0] }
	if overtakes(plain().serve(t, "fcfs", asks, nil)) {
		t.Error("fcfs lets the short one overtake: the test shows nothing")
	}
	r := plain().serve(t, "sjf-aging", asks, nil)
	if !overtakes(r) || r.clients[1].first() > 110*time.Millisecond {
		t.Errorf("the short one's first token came after %v", r.clients[1].first())
	}
}

// TestImportantPreempts: all places are taken by long streams; an important request gets one of
// them, and all end with the right tokens.
func TestImportantPreempts(t *testing.T) {
	m := plain()
	m.seqs = 2
	asks := []ask{
		{prompt: text(1, 100), output: 400},
		{prompt: text(2, 100), output: 400},
		{at: 300 * time.Millisecond, prompt: text(3, 100), output: 20,
			hints: generation.Hints{Priority: 5}},
	}
	preempted := 0
	count := func(_ *run, p *scheduler.Plan) { preempted += len(p.Preempted) }
	late := m.serve(t, "fcfs", asks, count).clients[2].first()
	if preempted > 0 || late < 100*time.Millisecond {
		t.Errorf("under fcfs the important one waits only %v, %d preempted: the test shows nothing",
			late, preempted)
	}
	preempted = 0
	r := m.serve(t, "priority", asks, count)
	t.Logf("the important one waits: fcfs %v, priority %v", late, r.clients[2].first())
	if preempted != 1 || r.clients[2].first() > 30*time.Millisecond {
		t.Errorf("the important one waits %v, %d were preempted", r.clients[2].first(), preempted)
	}
	if r.clients[1].done && r.clients[1].ended < r.clients[0].ended {
		t.Error("not the youngest gave way")
	}
}

// TestImportantGetsPages: the same when not places but pages are short.
func TestImportantGetsPages(t *testing.T) {
	m := plain()
	m.pages, m.cachePage = 64, 1
	asks := []ask{
		{prompt: text(1, 480), output: 400},
		{at: 300 * time.Millisecond, prompt: text(3, 320), output: 5,
			hints: generation.Hints{Priority: 5}},
	}
	late := m.serve(t, "fcfs", asks, nil).clients[1].first()
	soon := m.serve(t, "priority", asks, nil).clients[1].first()
	if late < 150*time.Millisecond || soon > 60*time.Millisecond {
		t.Errorf("the important one waits %v under fcfs, %v under priority", late, soon)
	}
}

// TestDeadlines: more comes than can be done in time. Under fcfs nearly everybody is late, under
// edf-relegate few are: those that could not have been in time anyway gave way.
func TestDeadlines(t *testing.T) {
	var asks []ask
	for i := range 60 {
		// A third more than the machine can do. Every fifth prompt is long.
		n, within := 400, 300*time.Millisecond
		if i%5 == 0 {
			n, within = 1600, 600*time.Millisecond
		}
		asks = append(asks, ask{
			at: time.Duration(i) * 48 * time.Millisecond, prompt: text(uint64(i), n), output: 1,
			hints: generation.Hints{Deadline: within},
		})
	}
	inTime := func(r *run) (n int) {
		for _, c := range r.clients {
			if c.first() <= c.hints.Deadline {
				n++
			}
		}
		return n
	}
	fcfs := inTime(plain().serve(t, "fcfs", asks, nil))
	edf := inTime(plain().serve(t, "edf-relegate", asks, nil))
	t.Logf("in time of %d: fcfs %d, edf-relegate %d", len(asks), fcfs, edf)
	if fcfs > len(asks)/2 || edf < len(asks)*3/4 {
		t.Error("relegation does not keep the deadlines")
	}
}

// TestUrgentDeadline: a deadline is met that fcfs misses.
func TestUrgentDeadline(t *testing.T) {
	asks := []ask{
		{prompt: text(1, 3000), output: 1, hints: generation.Hints{Deadline: 2 * time.Second}},
		{prompt: text(2, 3000), output: 1, hints: generation.Hints{Deadline: 2 * time.Second}},
		{at: 50 * time.Millisecond, prompt: text(3, 200), output: 1,
			hints: generation.Hints{Deadline: 120 * time.Millisecond}},
	}
	if r := plain().serve(t, "fcfs", asks, nil); r.clients[2].first() <= 120*time.Millisecond {
		t.Error("fcfs meets the deadline: the test shows nothing")
	}
	for i, c := range plain().serve(t, "edf-relegate", asks, nil).clients {
		if c.first() > c.hints.Deadline {
			t.Errorf("request %d is late: %v", i, c.first())
		}
	}
}

// TestTenantsShares: two tenants always have something waiting, one of them ten times as much. Each
// gets tokens by its weight, within 5 %.
func TestTenantsShares(t *testing.T) {
	for _, weight := range []uint32{1000, 3000} {
		m := plain()
		m.shares.Tenants = []engine.Tenant{{Name: "small", WeightMilli: weight}}
		m.lasts = 4 * time.Second
		var asks []ask
		for i := range 400 {
			asks = append(asks, ask{
				prompt: text(uint64(i), 200+i%7*40), output: 1 + i%30,
				hints: generation.Hints{Tenant: "large"},
			})
		}
		for i := range 120 {
			asks = append(asks, ask{
				at: time.Millisecond, prompt: text(uint64(1000+i), 300+i%5*40), output: 1 + i%20,
				hints: generation.Hints{Tenant: "small"},
			})
		}
		want := float64(weight) / float64(weight+1000)
		fcfs, vtc := share(t, m, "fcfs", asks), share(t, m, "vtc", asks)
		t.Logf("weight %d of %d: wanted %.3f, fcfs %.3f, vtc %.3f", weight, weight+1000, want, fcfs,
			vtc)
		if fcfs > want-0.3 {
			t.Error("fcfs is fair: the test shows nothing")
		}
		if vtc < want*0.95 || vtc > want*1.05 {
			t.Errorf("the small tenant has %.3f of the tokens", vtc)
		}
	}
}

// share is the small tenant's part of the tokens, a generated one counting twice.
func share(t *testing.T, m machine, policy string, asks []ask) float64 {
	of := map[string]int{}
	r := m.serve(t, policy, asks, func(r *run, p *scheduler.Plan) {
		for _, c := range p.Chunks {
			asked := r.clients[c.ID-1]
			switch {
			case c.Decode:
				of[asked.hints.Tenant] += 2
			case c.End == len(asked.prompt): // The first token comes with it.
				of[asked.hints.Tenant] += c.End - c.Start + 2
			default:
				of[asked.hints.Tenant] += c.End - c.Start
			}
		}
	})
	waiting := map[string]int{}
	for _, c := range r.clients {
		if len(c.tokens) == 0 {
			waiting[c.hints.Tenant]++
		}
	}
	if policy == "vtc" && (waiting["small"] == 0 || waiting["large"] == 0) {
		t.Fatalf("not both tenants always had something waiting: %v", waiting)
	}
	return float64(of["small"]) / float64(of["small"]+of["large"])
}

// stutter is a stream beside which long prompts come, and how long its longest gap is.
func stutter(t *testing.T, m machine, policy string) (gap, prompts time.Duration) {
	asks := []ask{{prompt: text(1, 100), output: 300}}
	for i := range 6 {
		asks = append(asks, ask{
			at: time.Duration(100+i*150) * time.Millisecond, prompt: text(uint64(2+i), 1500),
			output: 1,
		})
	}
	r := m.serve(t, policy, asks, nil)
	for _, c := range r.clients[1:] {
		prompts += c.first() / 6
	}
	return r.clients[0].gap(), prompts
}

// TestStreamsDoNotStutter: sarathi bounds the gap between a stream's tokens by its budget,
// slo-chunk by its target. Under fcfs a step is as long as the engine's own budget is.
func TestStreamsDoNotStutter(t *testing.T) {
	m := plain()
	m.budget = 2048
	fcfs, _ := stutter(t, m, "fcfs")
	m.settings = `{"token_budget": 256}`
	sarathi, first := stutter(t, m, "sarathi")
	// 256 tokens take 25.6 ms, and the step 1.
	if fcfs < 100*time.Millisecond || sarathi > 27*time.Millisecond {
		t.Errorf("longest gap: fcfs %v, sarathi %v", fcfs, sarathi)
	}
	t.Logf("longest gap: fcfs %v, sarathi %v; prompts %v", fcfs, sarathi, first)
	for _, target := range []struct {
		settings string
		itl      time.Duration
		most     time.Duration
	}{
		{`{"target_ms": 20}`, 0, 20 * time.Millisecond},
		{`{"target_ms": 60}`, 0, 60 * time.Millisecond},
		{`{"target_ms": 60}`, 30 * time.Millisecond, 30 * time.Millisecond},
	} {
		m.settings = target.settings
		m.shares.Classes = map[uint8]engine.Class{0: {TokenGap: target.itl}}
		gap, first := stutter(t, m, "slo-chunk")
		t.Logf("%s, itl %v: longest gap %v; prompts %v", target.settings, target.itl, gap, first)
		if gap > target.most || gap < target.most/2 {
			t.Errorf("%s, itl %v: longest gap %v", target.settings, target.itl, gap)
		}
	}
}

// TestGroupsRunTogether: groups of prompts share long starts, and the cache holds little more than
// one of them. prefix-affinity computes each start about once.
func TestGroupsRunTogether(t *testing.T) {
	m := plain()
	m.pages, m.seqs = 140, 2
	var asks []ask
	for i := range 40 { // Five groups by turns.
		prompt := append(text(uint64(i%5), 640), text(uint64(100+i), 60)...)
		asks = append(asks, ask{at: time.Duration(i), prompt: prompt, output: 4})
	}
	cached := func(policy string) float64 {
		tokens, hits := 0, 0
		for _, c := range m.serve(t, policy, asks, nil).clients {
			tokens += len(c.prompt)
			hits += c.report.Cached
		}
		return float64(hits) / float64(tokens)
	}
	fcfs, affinity := cached("fcfs"), cached("prefix-affinity")
	t.Logf("tokens from the cache: fcfs %.2f, prefix-affinity %.2f", fcfs, affinity)
	if fcfs > 0.3 || affinity < 0.6 {
		t.Error("groups do not run together")
	}
}

// TestQuotaHolds: a tenant fills all places with long streams; another one gets the places that it
// was promised, and the first keeps its own.
func TestQuotaHolds(t *testing.T) {
	m := plain()
	m.seqs, m.settings = 6, `{"max_running": 3}`
	var asks []ask
	for i := range 12 {
		asks = append(asks, ask{
			prompt: text(uint64(i), 60), output: 300, hints: generation.Hints{Tenant: "loud"},
		})
	}
	for i := range 3 {
		asks = append(asks, ask{
			at: 400 * time.Millisecond, prompt: text(uint64(50+i), 60), output: 60,
			hints: generation.Hints{Tenant: "quiet"},
		})
	}
	worst := func(policy string) (worst time.Duration, alone, beside int) {
		r := m.serve(t, policy, asks, func(r *run, p *scheduler.Plan) {
			running := map[string]int{}
			for _, c := range p.Chunks {
				running[r.clients[c.ID-1].hints.Tenant]++
			}
			if running["quiet"] == 3 {
				beside = max(beside, running["loud"])
			} else if r.now < 400*time.Millisecond {
				alone = max(alone, running["loud"])
			}
		})
		for _, c := range r.clients[12:] {
			worst = max(worst, c.first())
		}
		return worst, alone, beside
	}
	fcfs, _, _ := worst("fcfs")
	quota, alone, beside := worst("tenant-quota")
	t.Logf("longest wait of the quiet tenant: fcfs %v, tenant-quota %v; loud alone %d, beside %d",
		fcfs, quota, alone, beside)
	if fcfs < 400*time.Millisecond || quota > 60*time.Millisecond {
		t.Errorf("the quiet tenant waits %v under fcfs, %v under its quota", fcfs, quota)
	}
	if alone != 6 || beside != 3 {
		t.Errorf("the loud tenant runs %d alone, %d beside the other", alone, beside)
	}
}

// TestSendsBackOff: prefill is five times as fast as the link. Under fcfs the KV piles up; under
// send-aware it does not, and the link is never idle for it.
func TestSendsBackOff(t *testing.T) {
	m := plain()
	m.token = 10 * time.Microsecond
	m.link = &link{rate: 20} // 50 us a token.
	m.settings = `{"max_backlog_ms": 100}`
	asks := []ask{ // The first tells how fast the link is.
		{prompt: text(98, 600), send: true},
		{at: 350 * time.Millisecond, prompt: text(99, 500), output: 5},
	}
	for i := range 40 {
		asks = append(asks, ask{
			at: time.Duration(200+i) * time.Millisecond, prompt: text(uint64(i), 600+i%5*100),
			send: true,
		})
	}
	peak := func(policy string) (peak, all time.Duration, local *client) {
		r := m.serve(t, policy, asks, func(r *run, _ *scheduler.Plan) {
			peak = max(peak, r.link.waits())
		})
		for _, c := range r.clients {
			all = max(all, c.ended)
			if !c.send {
				local = c
			}
		}
		return peak, all, local
	}
	fcfs, end, _ := peak("fcfs")
	aware, endAware, local := peak("send-aware")
	t.Logf("longest backlog: fcfs %v, send-aware %v; all is sent after %v and %v; local after %v",
		fcfs, aware, end, endAware, local.first())
	if fcfs < 800*time.Millisecond || aware > 200*time.Millisecond {
		t.Error("sends do not back off")
	}
	if endAware > end+end/50 {
		t.Error("the link was idle")
	}
	if local.first() > 30*time.Millisecond {
		t.Errorf("a request that is not sent waits %v", local.first())
	}
}
