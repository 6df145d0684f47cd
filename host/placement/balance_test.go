package placement

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestScenario79Split: a short remainder is not sent, a share of the tail is computed at the decode
// instance, and a prompt's last token never travels.
func TestScenario79Split(t *testing.T) {
	p := pool(t, []string{"p0"}, []string{"d0"})
	var a Ticket
	if p.Split(&a, 100, Balance{}) != 0 {
		t.Error("without a prefill instance something is sent")
	}
	if err := p.Place(&a); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prompt int
		b      Balance
		end    int
	}{
		{100, Balance{}, 99}, {1, Balance{}, 0}, {2, Balance{}, 1},
		{100, Balance{Share: 0.1}, 90}, {10, Balance{Share: 0.9}, 1},
		{100, Balance{Share: 1}, 0}, {100, Balance{Share: 0.001}, 99},
		{100, Balance{MinRemote: 99}, 99}, {100, Balance{MinRemote: 100}, 0},
		{100, Balance{Share: 0.5, MinRemote: 51}, 0},
	} {
		if end := p.Split(&a, c.prompt, c.b); end != c.end {
			t.Errorf("%+v of %d tokens: [0, %d) is sent, want %d", c.b, c.prompt, end, c.end)
		}
	}
	for _, c := range []struct {
		uncached, least int
		worth           bool
	}{{0, 0, false}, {1, 0, true}, {15, 16, false}, {16, 16, true}} {
		if got := (Balance{MinRemote: c.least}).Worth(c.uncached); got != c.worth {
			t.Errorf("%d uncached tokens, at least %d: %v", c.uncached, c.least, got)
		}
	}
}

// TestTheBalanceFollowsTheLoad: what waits at the prefill instance beyond the decode instance's own
// work is halved between the two, and an idle fleet computes remotely.
func TestTheBalanceFollowsTheLoad(t *testing.T) {
	p := pool(t, []string{"p0"}, []string{"d0"})
	auto := Balance{Auto: true, Share: 0.7}
	next := func() (ticket *Ticket, end int) {
		ticket = &Ticket{}
		if err := p.Place(ticket); err != nil {
			t.Fatal(err)
		}
		end = p.Split(ticket, 1000, auto)
		ticket.Compute(Prefill, end)
		ticket.Compute(Decode, 1000-end)
		return ticket, end
	}
	a, end := next()
	if end != 999 {
		t.Errorf("an idle fleet: %d", end)
	}
	b, end := next()
	if end != 1000-499 {
		t.Errorf("with 999 tokens ahead and 1 at the decode instance: %d", end)
	}
	if _, end = next(); end != 1000-500 { // 1500 ahead, 500 at the decode instance.
		t.Errorf("with 1500 tokens ahead and 500 at the decode instance: %d", end)
	}
	a.Release(Prefill)
	b.Compute(Prefill, 0)
	b.Compute(Decode, 0)
	if _, end = next(); end != 999 { // 500 ahead, 501 at the decode instance.
		t.Errorf("after two were through: %d", end)
	}
}

// TestPendingIsWhatTicketsHold: random changes against a twin that adds up anew.
func TestPendingIsWhatTicketsHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	p := pool(t, []string{"p0", "p1"}, []string{"d0", "d1"})
	tickets := make([]Ticket, 12)
	for range 3000 {
		ticket, role := &tickets[r.IntN(len(tickets))], Role(r.IntN(2))
		switch r.IntN(7) {
		case 0:
			ticket.Release(role)
		case 1:
			ticket.Exclude(role)
		case 2:
			ticket.Forgive()
		case 3, 4:
			ticket.Compute(role, r.IntN(500))
		case 5:
			p.PlacePrefill(ticket)
		default:
			_ = p.Place(ticket) // All may be excluded.
		}
		want := map[string]int{}
		for i := range tickets {
			for role := range roles {
				want[tickets[i].Instance(role)] += tickets[i].pending[role]
			}
		}
		for _, i := range p.Snapshot() {
			if i.Pending != want[i.Name] {
				t.Fatalf("%+v: its tickets hold %d", i, want[i.Name])
			}
		}
		if want[""] != 0 {
			t.Fatal("a ticket that holds nothing has something pending")
		}
	}
}

func TestSuspectsAreTakenLastAndDrainedNever(t *testing.T) {
	p := pool(t, []string{"p0", "p1"}, []string{"d0", "d1"})
	if !p.Suspect(Decode, "d0") || p.Suspect(Decode, "d0") || p.Snapshot()[2].Up {
		t.Fatal("becoming suspect is reported once")
	}
	var a, b, c, d, e Ticket
	expect(t, place(t, p, &a), "p0>d1")
	expect(t, place(t, p, &e), "p1>d1") // In spite of the load.
	e.Release(Prefill)
	e.Release(Decode)
	if !p.Gone(Decode, "d1") || p.Gone(Decode, "d1") || !p.Ready() {
		t.Fatal("going down is reported once, and a suspect is better than nobody")
	}
	expect(t, place(t, p, &e), "p1>d0")
	e.Release(Prefill)
	e.Release(Decode)
	if !p.Healthy(Decode, "d0", Report{}) || !p.Healthy(Decode, "d1", Report{Running: 1}) {
		t.Fatal("one check that succeeds brings it back")
	}
	if p.Drain(Decode, "x", true) || !p.Drain(Decode, "d1", true) || !p.Drain(Prefill, "p1", true) {
		t.Fatal("draining knows the names")
	}
	expect(t, place(t, p, &b), "p0>d0")
	if p.Snapshot()[3].InFlight != 1 || !p.Snapshot()[3].Draining {
		t.Errorf("%+v", p.Snapshot())
	}
	p.Drain(Decode, "d0", true)
	if err := p.Place(&c); err != ErrNoDecode || p.Ready() {
		t.Errorf("all drain: %v", err)
	}
	p.Drain(Decode, "d1", false)
	expect(t, place(t, p, &d), "p0>d1")
	a.Exclude(Decode)
	if err := p.Place(&a); err != ErrTried {
		t.Errorf("%v", err)
	}
	a.Forgive()
	expect(t, place(t, p, &a), "p0>d1")
	a.Exclude(Prefill)
	if p.PlacePrefill(&a) || a.Instance(Decode) != "d1" {
		t.Error("another prefill instance, and another one only")
	}
}
