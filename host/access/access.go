// Package access decides who may enter by the applications' listener, and how often: API keys by
// their SHA-256, limits for each key or each address, what pages of other origins may do, and the
// certificate. It knows no model and generates nothing.
//
// What always holds:
//
//  1. A secret is never kept, never logged, and compared in a time that says nothing about it.
//  2. What a visit took at its start is given back or settled at its end, once.
//  3. New rules hold for the next request; they interrupt none, and balances survive them.
package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// Limits bound what one key, or one address, may do; 0 is unlimited.
type Limits struct {
	RequestsPerMinute, TokensPerMinute, Concurrent int
}

// Key lets somebody in. Its secret is known by the SHA-256 alone.
type Key struct {
	Name   string
	Hash   [sha256.Size]byte
	Tenant string   // "": whom the request names
	Models []string // those it may use; "*" is any
	Limits Limits
}

// Rules are who may enter. With Required nobody enters without a key; without it Limits hold for
// each address.
type Rules struct {
	Required bool
	Keys     []Key
	Limits   Limits
}

// Gate lets requests in. Its methods may be called from any goroutine.
type Gate struct {
	now func() time.Time

	mu        sync.Mutex
	rules     Rules
	keys      map[string]*account // by the key's name
	addresses map[string]*account
	swept     time.Time // when addresses were last forgotten
}

// New returns a gate; now tells the time.
func New(r Rules, now func() time.Time) *Gate {
	g := &Gate{now: now, keys: map[string]*account{}, addresses: map[string]*account{}}
	g.Replace(r)
	return g
}

// Replace puts new rules in place. Keys that stay, by name, keep their balance.
func (g *Gate) Replace(r Rules) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	keys := map[string]*account{}
	for _, k := range r.Keys {
		a := g.keys[k.Name]
		if a == nil {
			a = &account{}
		}
		a.limit(k.Limits, now)
		keys[k.Name] = a
	}
	for _, a := range g.addresses {
		a.limit(r.Limits, now)
	}
	g.rules, g.keys = r, keys
}

// Enter lets a request in or says why not. It writes the headers that tell the limits into answer.
// The visit must be left. Only a request that does work counts towards the limits: a POST.
func (g *Gate) Enter(answer http.Header, r *http.Request) (*Visit, *openai.Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := &Visit{gate: g, answer: answer, anyModel: true}
	if g.rules.Required {
		key, fault := g.key(r.Header.Get("Authorization"))
		if fault != nil {
			answer.Set("WWW-Authenticate", "Bearer")
			return nil, fault
		}
		v.name, v.tenant, v.models = key.Name, key.Tenant, key.Models
		v.anyModel = slices.Contains(key.Models, "*")
		v.account = g.keys[key.Name]
	} else {
		v.account = g.address(r.RemoteAddr)
	}
	if r.Method != http.MethodPost {
		return v, nil
	}
	if fault := v.account.enter(g.now()); fault != nil {
		v.account.tell(answer, g.now())
		return nil, fault
	}
	v.counted = true
	v.account.tell(answer, g.now())
	return v, nil
}

// key finds whose secret a header holds. Every key is looked at, whichever fits.
func (g *Gate) key(header string) (*Key, *openai.Error) {
	scheme, secret, ok := strings.Cut(header, " ")
	secret = strings.TrimSpace(secret)
	if !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return nil, openai.Errorf(openai.CodeInvalidAPIKey, "",
			"an API key is needed: send the header Authorization: Bearer KEY")
	}
	hash := sha256.Sum256([]byte(secret))
	found := -1
	for i := range g.rules.Keys {
		same := subtle.ConstantTimeCompare(hash[:], g.rules.Keys[i].Hash[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return nil, openai.Errorf(openai.CodeInvalidAPIKey, "", "this API key is not known here")
	}
	return &g.rules.Keys[found], nil
}

// maxAddresses bounds the addresses that have a balance of their own.
const maxAddresses = 1 << 16

// sweepEvery is how often idle addresses are looked for, which reads all of them.
const sweepEvery = time.Second

// address returns the account of a peer. Beyond the bound those that have nothing outstanding are
// forgotten, and if all have, newcomers share one account.
func (g *Gate) address(remote string) *account {
	name := place(remote)
	if a := g.addresses[name]; a != nil {
		return a
	}
	if now := g.now(); len(g.addresses) >= maxAddresses && now.Sub(g.swept) >= sweepEvery {
		g.swept = now
		for old, a := range g.addresses {
			if a.idle(now) {
				delete(g.addresses, old)
			}
		}
	}
	if len(g.addresses) >= maxAddresses {
		name = "everybody else"
	}
	a := g.addresses[name] // Everybody else may be there already.
	if a == nil {
		a = &account{}
		a.limit(g.rules.Limits, g.now())
		g.addresses[name] = a
	}
	return a
}

// place is what limits without keys hold for: an IPv4 address, the /64 of an IPv6 one, which is
// what one customer has, or everybody on a unix socket.
func place(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "local"
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	const customer = 64
	prefix, err := addr.Prefix(customer)
	if err != nil {
		return addr.String()
	}
	return prefix.String()
}
