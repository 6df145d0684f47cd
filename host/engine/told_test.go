package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/scheduler"
)

// seer is first come first served, and keeps the latest view, and one of those in which something
// was on its way.
type seer struct {
	scheduler.FCFS
	mu     sync.Mutex
	latest abi.View
	busy   abi.View
}

func (s *seer) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	s.mu.Lock()
	s.latest = copied(v)
	if v.Header.SendBacklogBytes > 0 {
		s.busy = s.latest
	}
	s.mu.Unlock()
	return s.FCFS.Decide(v, out)
}

func copied(v *abi.View) abi.View {
	c := abi.View{Header: v.Header}
	c.Records = append(c.Records, v.Records...)
	c.Peers = append(c.Peers, v.Peers...)
	c.Tenants = append(c.Tenants, v.Tenants...)
	return c
}

// kind returns the first record of a kind.
func kind(v abi.View, k uint8) (abi.Record, bool) {
	for _, r := range v.Records {
		if r.State != 0 && r.Kind == k {
			return r, true
		}
	}
	return abi.Record{}, false
}

// TestPoliciesAreToldOfSends hands prompts over a slow link: the prefill engine's policy sees whom
// they go to, how much is on its way, how fast the link was and how busy the receiver is; the
// decode engine's how long a reservation still lives.
func TestPoliciesAreToldOfSends(t *testing.T) {
	o := small()
	o.pages, o.rate, o.lease = 200, 20_000, time.Minute
	prefill, decode := &seer{}, &seer{}
	o.policies = [2]scheduler.Policy{prefill, decode}
	w := newWorld(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// A reservation that nobody writes to yet.
	idle := generation.Request{ID: "idle", Prompt: prompt(20, 1), MaxTokens: 2}
	if _, err := w.decode.PrepareReceive(ctx, idle, -1); err != nil {
		t.Fatal(err)
	}
	local(t, w.decode, 2)
	record, there := kind(decode.last(), abi.KindPrepareReceive)
	if !there || record.LeaseMSLeft == 0 || record.LeaseMSLeft > 60_000 ||
		record.LeaseMSLeft%100 != 0 {
		t.Errorf("the reservation is shown %t: %+v", there, record)
	}

	sent := make(chan error, 1)
	go func() {
		ask := generation.Request{ID: "sent", Prompt: prompt(60, 3), MaxTokens: 2,
			Hints: generation.Hints{Tenant: "acme", Priority: 5}}
		_, err := w.handOver(ctx, ask)
		sent <- err
	}()
	deadline := time.Now().Add(time.Minute)
	for n := uint64(10); prefill.seen().Header.Step == 0; n++ { // Something to decide meanwhile.
		if time.Now().After(deadline) {
			t.Fatal("nothing was on its way in any step")
		}
		local(t, w.prefill, n)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	local(t, w.prefill, 5)
	busy, rest := prefill.seen(), prefill.last()
	if len(busy.Peers) != 1 || busy.Peers[0].Index != 1 || busy.Peers[0].State != 1 ||
		busy.Peers[0].BacklogBytes != busy.Header.SendBacklogBytes ||
		busy.Peers[0].FreePages == 0 || busy.Peers[0].FreePages > 200 ||
		busy.Peers[0].Running != 2 {
		t.Errorf("while it was sent: %+v, peers %+v", busy.Header.SendBacklogBytes, busy.Peers)
	}
	if rest.Header.SendBacklogBytes != 0 || rest.Peers[0].BacklogBytes != 0 ||
		rest.Header.LinkBytesPerUS == 0 || rest.Peers[0].LinkBytesPerUS == 0 {
		t.Errorf("when it had arrived: %+v, peers %+v", rest.Header, rest.Peers)
	}
	if len(rest.Tenants) != 2 || rest.Tenants[1].ServiceTokens < 50 {
		t.Errorf("tenants %+v", rest.Tenants)
	}
	if err := w.decode.Release(ctx, "idle"); err != nil {
		t.Fatal(err)
	}
}

// seen is a view in which something was on its way.
func (s *seer) seen() abi.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// last is the latest view.
func (s *seer) last() abi.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// local runs a request of its own on an engine.
func local(t *testing.T, e *Engine, seed uint64) {
	t.Helper()
	s, err := e.Generate(t.Context(), generation.Request{Prompt: prompt(6, seed), MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// TestCostsAreFound: the fit finds the costs that steps were made of, and says nothing while it
// cannot know.
func TestCostsAreFound(t *testing.T) {
	for _, want := range []fitted{
		{2 * time.Millisecond, 10 * time.Microsecond, 3000}, {time.Millisecond, 0, 500},
		{5 * time.Millisecond, time.Microsecond, 0},
	} {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		var c costFit
		for range 400 {
			x := 1 + r.IntN(2000)
			z := x * r.IntN(4000)
			took := want.fixed + time.Duration(x)*want.token +
				time.Duration(float64(z)*float64(want.contextPS)/1000)
			c.add(x, z, time.Duration(float64(took)*(0.98+0.04*r.Float64())))
		}
		got := c.fit()
		near := func(a, b, within float64) bool { return math.Abs(a-b) <= within }
		if !near(float64(got.fixed), float64(want.fixed), 2e6) ||
			!near(float64(got.token), float64(want.token), 0.1*float64(want.token)+1500) ||
			!near(float64(got.contextPS), float64(want.contextPS), 0.1*float64(want.contextPS)+30) {
			t.Errorf("seed %d: fitted %+v, want %+v", seed, got, want)
		}
	}
	var c costFit
	for range 50 {
		c.add(64, 64*100, time.Millisecond)
	}
	if got := c.fit(); got.token < 15*time.Microsecond || got.token > 16*time.Microsecond ||
		got.fixed != 0 || got.contextPS != 0 {
		t.Errorf("equal steps tell nothing apart, got %+v", got)
	}
	for i := range 50 { // Context grows with the tokens: its share cannot be told from theirs.
		c.add(64+i, 100*(64+i), time.Millisecond+time.Duration(i)*time.Microsecond)
	}
	if got := c.fit(); got.contextPS != 0 || got.token < 500 || got.token > 1500 {
		t.Errorf("tokens and context in step: %+v", got)
	}
}
