package access

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// clock is virtual time.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func key(name string, l Limits) Key {
	return Key{Name: name, Hash: sha256.Sum256([]byte("secret-" + name)), Models: []string{"*"},
		Limits: l}
}
func post(authorization string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/completions", nil)
	r.RemoteAddr = "192.0.2.1:5000"
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

// code is the code of a refusal, "" without one.
func code(e *openai.Error) openai.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

func TestKeysLetIn(t *testing.T) {
	c := newClock()
	k := key("a", Limits{})
	k.Tenant, k.Models = "acme", []string{"small", "large"}
	g := New(Rules{Required: true, Keys: []Key{key("b", Limits{}), k}}, c.now)
	for header, want := range map[string]openai.Code{
		"":                  openai.CodeInvalidAPIKey,
		"secret-a":          openai.CodeInvalidAPIKey,
		"Basic secret-a":    openai.CodeInvalidAPIKey,
		"Bearer ":           openai.CodeInvalidAPIKey,
		"Bearer secret-c":   openai.CodeInvalidAPIKey,
		"Bearer secret-":    openai.CodeInvalidAPIKey,
		"Bearer secret-aa":  openai.CodeInvalidAPIKey,
		"Bearer secret-a":   "",
		"bearer   secret-a": "",
	} {
		answer := http.Header{}
		v, fault := g.Enter(answer, post(header))
		if code(fault) != want {
			t.Errorf("%q: %v", header, fault)
		}
		if got := answer.Get("WWW-Authenticate"); (got == "Bearer") != (fault != nil) {
			t.Errorf("%q: WWW-Authenticate is %q", header, got)
		}
		if fault == nil && (v.Name() != "a" || v.Tenant() != "acme" || v.Allows("small") != nil ||
			code(v.Allows("other")) != openai.CodeModelNotAllowed || !v.Sees("acme") ||
			v.Sees("") || v.Sees("other")) {
			t.Errorf("%q: %+v", header, v)
		}
		v.Leave()
	}
	g.Replace(Rules{Required: true, Keys: []Key{key("b", Limits{})}})
	if _, fault := g.Enter(http.Header{}, post("Bearer secret-a")); code(fault) !=
		openai.CodeInvalidAPIKey {
		t.Error("a key that was taken away still lets in")
	}
}

func TestNoVisitAllowsEverything(t *testing.T) {
	var v *Visit
	v.Settle(5)
	v.Leave()
	if v.Allows("x") != nil || v.Spend(1<<40) != nil || v.Name() != "" || v.Tenant() != "" ||
		!v.Sees("x") {
		t.Error("a nil visit refuses")
	}
}

func TestRequestsPerMinute(t *testing.T) {
	c := newClock()
	g := New(Rules{Required: true, Keys: []Key{key("a", Limits{RequestsPerMinute: 3}),
		key("b", Limits{})}}, c.now)
	enter := func() (http.Header, *openai.Error) {
		answer := http.Header{}
		v, fault := g.Enter(answer, post("Bearer secret-a"))
		v.Leave()
		return answer, fault
	}
	for left := 2; left >= 0; left-- {
		answer, fault := enter()
		if fault != nil || answer.Get("X-RateLimit-Remaining-Requests") != strconv.Itoa(left) ||
			answer.Get("X-RateLimit-Limit-Requests") != "3" {
			t.Fatalf("%d left: %v %v", left, answer, fault)
		}
	}
	answer, fault := enter()
	if code(fault) != openai.CodeRateLimit || fault.RetryAfter != 20*time.Second ||
		answer.Get("X-RateLimit-Reset-Requests") != "1m0s" {
		t.Errorf("%v %v %v", fault, fault.RetryAfter, answer)
	}
	c.pass(20 * time.Second)
	if _, fault := enter(); fault != nil {
		t.Errorf("after Retry-After: %v", fault)
	}
	if _, fault := enter(); fault == nil {
		t.Error("refused requests give the budget back")
	}
	if _, fault := g.Enter(http.Header{}, post("Bearer secret-b")); fault != nil {
		t.Errorf("another key: %v", fault)
	}
	get := httptest.NewRequest("GET", "/v1/models", nil)
	get.Header.Set("Authorization", "Bearer secret-a")
	if _, fault := g.Enter(http.Header{}, get); fault != nil {
		t.Errorf("a request that does no work: %v", fault)
	}
}

func TestConcurrentRequests(t *testing.T) {
	c := newClock()
	g := New(Rules{Limits: Limits{Concurrent: 2}}, c.now)
	a, _ := g.Enter(http.Header{}, post(""))
	b, _ := g.Enter(http.Header{}, post(""))
	if _, fault := g.Enter(http.Header{}, post("")); code(fault) != openai.CodeRateLimit {
		t.Fatal("a third at once")
	}
	a.Leave()
	a.Leave() // Only the first counts.
	d, fault := g.Enter(http.Header{}, post(""))
	if fault != nil {
		t.Fatal(fault)
	}
	if _, fault := g.Enter(http.Header{}, post("")); fault == nil {
		t.Fatal("leaving twice made room for two")
	}
	g.Replace(Rules{Limits: Limits{Concurrent: 3}})
	if _, fault := g.Enter(http.Header{}, post("")); fault != nil {
		t.Errorf("new rules: %v", fault)
	}
	b.Leave()
	d.Leave()
}

// TestTokensAreSettled: an estimate is taken first, the usage holds in the end.
func TestTokensAreSettled(t *testing.T) {
	c := newClock()
	g := New(Rules{Limits: Limits{TokensPerMinute: 600}}, c.now)
	visit := func() *Visit {
		v, fault := g.Enter(http.Header{}, post(""))
		if fault != nil {
			t.Fatal(fault)
		}
		return v
	}
	remaining := func() int {
		answer := http.Header{}
		_, _ = g.Enter(answer, post(""))
		n, _ := strconv.Atoi(answer.Get("X-RateLimit-Remaining-Tokens"))
		return n
	}
	v := visit()
	if fault := v.Spend(500); fault != nil || remaining() != 100 {
		t.Fatalf("%v, %d left", fault, remaining())
	}
	if fault := visit().Spend(150); code(fault) != openai.CodeRateLimit ||
		fault.RetryAfter != 5*time.Second {
		t.Errorf("beyond: %v", fault)
	}
	v.Settle(50)
	if got := remaining(); got != 550 {
		t.Errorf("%d left after 50 were used", got)
	}
	v.Settle(50)
	if got := remaining(); got != 550 {
		t.Errorf("settling twice changed it to %d", got)
	}
	c.pass(time.Hour)
	v = visit()
	// More than a minute's worth: a full bucket is enough.
	if fault := v.Spend(2000); fault != nil {
		t.Fatal(fault)
	}
	v.Settle(1800)
	if got := remaining(); got != 0 {
		t.Errorf("%d left with a debt", got)
	}
	if fault := visit().Spend(1); fault == nil || fault.RetryAfter < 120*time.Second ||
		fault.RetryAfter > 121*time.Second {
		t.Errorf("a debt of 1200: %v", fault)
	}
	c.pass(10 * time.Minute)
	v = visit()
	_ = v.Spend(10)
	v.Settle(0)
	if got := remaining(); got != 600 {
		t.Errorf("%d left after nothing was used; at most 600 may be", got)
	}
}

// TestBalanceRandom compares with a plain sum: over any time T no more than burst + T × rate tokens
// are let through, once all is settled.
func TestBalanceRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := newClock()
	const perMinute = 6000
	g := New(Rules{Limits: Limits{TokensPerMinute: perMinute}}, c.now)
	begun, used := c.now(), 0
	for range 5000 {
		c.pass(time.Duration(r.IntN(500)) * time.Millisecond)
		v, fault := g.Enter(http.Header{}, post(""))
		if fault != nil {
			t.Fatal(fault)
		}
		estimate := 1 + r.IntN(800)
		if v.Spend(estimate) == nil {
			n := r.IntN(estimate + 1)
			v.Settle(n)
			used += n
		}
		v.Leave()
		most := float64(perMinute) + c.now().Sub(begun).Minutes()*perMinute
		if float64(used) > most+1 {
			t.Fatalf("%d tokens in %v; at most %.0f", used, c.now().Sub(begun), most)
		}
	}
	if used == 0 {
		t.Error("nobody got through")
	}
}

func TestPlaces(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:2": "192.0.2.1",
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64",
		"@": "local", "": "local",
	} {
		if got := place(remote); got != want {
			t.Errorf("%q is %q, want %q", remote, got, want)
		}
	}
}

// TestAddressesAreBounded: a flood of addresses neither grows without end nor shuts others out.
func TestAddressesAreBounded(t *testing.T) {
	c := newClock()
	g := New(Rules{Limits: Limits{RequestsPerMinute: 2}}, c.now)
	enter := func(i int) *openai.Error {
		r := post("")
		r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)
		v, fault := g.Enter(http.Header{}, r)
		v.Leave()
		return fault
	}
	refused := 0
	for i := range maxAddresses + 10 {
		if enter(i) != nil {
			refused++
		}
	}
	if len(g.addresses) > maxAddresses+1 || refused != 8 {
		t.Errorf("%d accounts, %d refused", len(g.addresses), refused)
	}
	c.pass(time.Minute)
	if fault := enter(1 << 20); fault != nil || len(g.addresses) > 3 {
		t.Errorf("%v, %d accounts after a minute", fault, len(g.addresses))
	}
}

func TestManyAtOnce(t *testing.T) {
	g := New(Rules{Required: true, Keys: []Key{key("a", Limits{1000, 1e6, 1000})}}, time.Now)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				v, fault := g.Enter(http.Header{}, post("Bearer secret-a"))
				if fault != nil {
					t.Error(fault)
					return
				}
				_ = v.Spend(10)
				v.Settle(5)
				v.Leave()
			}
		})
	}
	wait.Go(func() {
		for range 50 {
			g.Replace(Rules{Required: true, Keys: []Key{key("a", Limits{1000, 1e6, 1000})}})
		}
	})
	wait.Wait()
	if open := g.keys["a"].open; open != 0 {
		t.Errorf("%d requests are still open", open)
	}
}
