package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// greeter is an instance that introduces itself and does nothing else.
func greeter(t *testing.T, compat string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ready":
			asked.Add(1)
			fmt.Fprint(w, "{}")
		case r.URL.Path == openai.PathInstance:
			_ = json.NewEncoder(w).Encode(openai.Instance{Name: compat, Role: "all",
				Models: []string{"m"}, Context: 8, Compat: compat})
		case strings.HasSuffix(r.URL.Path, "/tokenizer.json"):
			_, _ = io.WriteString(w, `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`)
		default:
			openai.WriteError(w, openai.Errorf(openai.CodeUnknownURL, "", "no"))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// TestReplace: the lists change while the router runs; what stays keeps its state, what is new is
// met, what is gone is asked no more, and a whole fleet may be exchanged for one of another model.
func TestReplace(t *testing.T) {
	p, _ := greeter(t, "one")
	d, oldAsked := greeter(t, "one")
	r, err := New(Options{Prefill: []Endpoint{{"p", p}}, Decode: []Endpoint{{"d", d}}})
	if err != nil {
		t.Fatal(err)
	}
	up := func() (names []string) {
		for _, i := range r.Instances() {
			if i.Up && r.known[i.Role.String()+"/"+i.Name].Compat != "" {
				names = append(names, i.Name+" "+i.URL)
			}
		}
		return names
	}
	r.checkAll(t.Context())
	if got := up(); !slices.Equal(got, []string{"p " + p, "d " + d}) || r.Ready() != nil {
		t.Fatalf("%v are up, %v", got, r.Ready())
	}
	twice := []Endpoint{{"x", p}, {"x", p}}
	if r.Replace(twice, twice) == nil || len(up()) != 2 {
		t.Errorf("two of one name; %v are up", up())
	}

	var ticket placement.Ticket
	r.settle(func(p *placement.Pool) { err = p.Place(&ticket) })
	if err != nil {
		t.Fatal(err)
	}
	next, _ := greeter(t, "one")
	if err := r.Replace([]Endpoint{{"p", p}}, []Endpoint{{"d2", next}}); err != nil {
		t.Fatal(err)
	}
	if got := ticket.Instance(placement.Decode); got != "d" {
		t.Errorf("a request that runs lost its instance: %q", got)
	}
	before := oldAsked.Load()
	r.checkAll(t.Context())
	if got := up(); !slices.Equal(got, []string{"p " + p, "d2 " + next}) ||
		oldAsked.Load() != before {
		t.Errorf("%v are up; the old one was asked %d times", got, oldAsked.Load()-before)
	}
	r.settle(func(*placement.Pool) { ticket.Release(placement.Decode) })

	other, _ := greeter(t, "two")
	if err := r.Replace([]Endpoint{{"p", other}}, []Endpoint{{"d2", other}}); err != nil {
		t.Fatal(err)
	}
	r.checkAll(t.Context())
	if m, fault := r.Model(); fault != nil || m.Instance.Compat != "two" {
		t.Errorf("the model of the new fleet: %+v %v", m, fault)
	}
}
