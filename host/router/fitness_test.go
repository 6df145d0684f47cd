package router

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// stateOf is what an operator is shown of an instance.
func stateOf(r *Router, name string) (State, string) {
	for _, p := range r.Instances() {
		if p.Name == name {
			return p.State, p.Problem
		}
	}
	return "", "not listed"
}

// TestWhoDoesNotServeIsRefused: who joins serves the role asked for and is an instance.
func TestWhoDoesNotServeIsRefused(t *testing.T) {
	d0, odd := newInstance(t, "d0", "x"), newInstance(t, "odd", "x")
	r := fleet(t, nil, []*fakeInstance{d0})
	web := func(status int, text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, c := range []struct {
		role       placement.Role
		says, want string
		url        string
	}{
		{placement.Decode, "prefill", "its role is prefill", odd.server.URL},
		{placement.Prefill, "decode", "its role is decode", odd.server.URL},
		{placement.Decode, "router", "its role is router", odd.server.URL},
		{placement.Decode, "", "tells no role", odd.server.URL},
		{placement.Decode, "", "no instance", web(404, "not found")},
		{placement.Decode, "", "no instance", web(200, "<html>")},
	} {
		odd.who.Role = c.says
		err := r.Join(t.Context(), c.role, Endpoint{"odd", c.url})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s as %s: %v", c.says, c.role, err)
		}
		if n := len(r.Instances()); n != 1 {
			t.Fatalf("%d instances are listed", n)
		}
	}
}

// TestListedInstancesAreChecked: one that the file lists under another role is down and says why;
// one that nobody has asked yet is starting, one that leaves is draining.
func TestListedInstancesAreChecked(t *testing.T) {
	d0, p, d2 := newInstance(t, "d0", "x"), newInstance(t, "p", "x"), newInstance(t, "d2", "x")
	p.who.Role = "prefill"
	r := fleet(t, nil, []*fakeInstance{d0})
	if err := r.Replace(nil, []Endpoint{p.endpoint(), d0.endpoint(), d2.endpoint()}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "d2"} {
		if state, why := stateOf(r, name); state != StateStarting {
			t.Errorf("%s before a check: %s, %s", name, state, why)
		}
	}
	d2.server.Close()
	r.checkAll(t.Context())
	if state, why := stateOf(r, "p"); state != StateDown || !strings.Contains(why, "its role is") {
		t.Errorf("a prefill instance as decode: %s, %q", state, why)
	}
	if state, why := stateOf(r, "d2"); state != StateDown || why == "" {
		t.Errorf("a dead port: %s, %q", state, why)
	}
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // Connections wait there and nobody answers.
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	if err := r.Replace([]Endpoint{{Name: "quiet", URL: "http://" + quiet.Addr().String()}},
		[]Endpoint{p.endpoint(), d0.endpoint(), d2.endpoint()}); err != nil {
		t.Fatal(err)
	}
	p.who.Role = "all"
	r.checkAll(t.Context())
	if state, why := stateOf(r, "quiet"); state != StateSilent || why != fmt.Sprintf(
		"no answer in %v", r.options.ConnectTimeout+time.Second) {
		t.Errorf("one that takes connections alone: %s, %q", state, why)
	}
	if state, why := stateOf(r, "p"); state != StateUp {
		t.Errorf("once it serves: %s, %q", state, why)
	}
	p.set(func() { p.ready = openai.Errorf(openai.CodeDraining, "", "it leaves") })
	r.checkAll(t.Context())
	if state, why := stateOf(r, "p"); state != StateDraining {
		t.Errorf("one that leaves: %s, %q", state, why)
	}
	if err := r.Drain(placement.Decode, "d0", true); err != nil {
		t.Fatal(err)
	}
	if state, why := stateOf(r, "d0"); state != StateDraining {
		t.Errorf("drained here: %s, %q", state, why)
	}
}

// TestForeignRefusalsStayInside: what an instance says of itself is no fault of the client's
// request: another one serves it, and where none is left the answer is the server's error.
func TestForeignRefusalsStayInside(t *testing.T) {
	for _, c := range []struct {
		fault *openai.Error
		role  string // of the instance by now
	}{
		{openai.Errorf(openai.CodeInvalidValue, "", "its role is prefill"), "prefill"},
		{openai.Errorf(openai.CodeUnknownURL, "", "no such URL"), "all"},
	} {
		d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
		r := fleet(t, nil, []*fakeInstance{d0, d1})
		d0.set(func() {
			d0.who.Role = c.role
			d0.fail[openai.PathStartGenerate] = c.fault
		})
		if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
			t.Errorf("%s: %v, %v", c.fault.Code, got, err)
		}
		if err := r.Leave(placement.Decode, "d1"); err != nil {
			t.Fatal(err)
		}
		_, _, err := ask(t.Context(), r)
		fault, ok := errors.AsType[*generation.Error](err)
		if !ok || openai.Lookup(openai.Code(fault.Code)).Status < 500 {
			t.Errorf("%s alone: %v", c.fault.Code, err)
		}
		idle(t, r)
	}
}

// TestAReplaceBringsBackWhoLeft of those that the file names.
func TestAReplaceBringsBackWhoLeft(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	if err := r.Leave(placement.Decode, "d1"); err != nil {
		t.Fatal(err)
	}
	if got := r.Absent(); !slices.Equal(got, []string{"decode/d1"}) {
		t.Errorf("absent: %q", got)
	}
	if err := r.Replace(nil, []Endpoint{d0.endpoint(), d1.endpoint()}); err != nil {
		t.Fatal(err)
	}
	r.checkAll(t.Context())
	if state, why := stateOf(r, "d1"); state != StateUp || len(r.Absent()) != 0 {
		t.Errorf("%s, %q", state, why)
	}
}

// TestAMisfitIsNamedOnce: an instance that was not there at first and then does not fit is in the
// log once, with what mends it, and the list says the same; a later, other reason is logged again.
func TestAMisfitIsNamedOnce(t *testing.T) {
	d0, odd := newInstance(t, "d0", "fma"), newInstance(t, "odd", "tdp")
	var lines bytes.Buffer
	r := fleet(t, nil, []*fakeInstance{d0})
	r.options.Log = slog.New(slog.NewTextHandler(&lines, nil))
	r.options.Mend = func(part, here, there string) string {
		return " (set " + part + " = " + there + ", not " + here + ")"
	}
	dead := Endpoint{"odd", "http://127.0.0.1:1"}
	if err := r.Replace(nil, []Endpoint{d0.endpoint(), dead}); err != nil {
		t.Fatal(err)
	}
	for range placement.DownAfter {
		r.checkAll(t.Context())
	}
	r.mu.Lock() // It starts at last, where the list has it.
	r.urls[placement.Decode]["odd"] = odd.server.URL
	r.mu.Unlock()
	const want = "page_size is tdp here and fma there (set page_size = fma, not tdp)"
	for range 4 {
		r.checkAll(t.Context())
		if state, why := stateOf(r, "odd"); state != StateDown || !strings.Contains(why, want) {
			t.Fatalf("%s, %q", state, why)
		}
	}
	if n := strings.Count(lines.String(), want); n != 1 {
		t.Errorf("the misfit is logged %d times:\n%s", n, &lines)
	}
	odd.who.Role = "prefill"
	for range 4 {
		r.checkAll(t.Context())
	}
	if n := strings.Count(lines.String(), "its role is prefill"); n != 1 {
		t.Errorf("the other reason is logged %d times:\n%s", n, &lines)
	}
}
