package router

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

func (f *fakeInstance) endpoint() Endpoint { return Endpoint{f.who.Name, f.server.URL} }

// TestScenario76InstancesComeAndGo: while a request waits in a decode instance that leaves, another
// one joins and serves; the first request ends where it began, and the counters are 0.
func TestScenario76InstancesComeAndGo(t *testing.T) {
	p, d0, d1 := newInstance(t, "p0", "x"), newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d0})
	hold := make(chan struct{})
	p.set(func() { p.slow = hold })
	type answer struct {
		tokens []int32
		err    error
	}
	first := make(chan answer)
	go func() {
		got, _, err := ask(t.Context(), r)
		first <- answer{got, err}
	}()
	for !containsCall(d0, openai.PathPrepareReceive) {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	if err := r.Leave(placement.Decode, "d0"); err != nil {
		t.Fatal(err)
	}
	if err := r.Leave(placement.Decode, "d0"); err == nil {
		t.Error("it left twice")
	}
	if err := r.Join(t.Context(), placement.Decode, d1.endpoint()); err != nil {
		t.Fatal(err)
	}
	if err := r.Join(t.Context(), placement.Decode, d0.endpoint()); err != nil {
		t.Error("the file's own may come back:", err)
	}
	if err := r.Drain(placement.Decode, "d0", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(placement.Decode, "d9", true); err == nil {
		t.Error("an unknown instance drains")
	}
	close(hold)
	if a := <-first; a.err != nil || !slices.Equal(a.tokens, tokens) ||
		!containsCall(d0, openai.PathStartGenerate) {
		t.Errorf("the request that was under way: %v, %v; calls %q", a.tokens, a.err, d0.seen())
	}
	p.set(func() { p.slow = nil })
	before := d0.seen()
	if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) ||
		d0.seen() != before || !containsCall(d1, openai.PathStartGenerate) {
		t.Errorf("the next request: %v, %v; calls %q", got, err, d1.seen())
	}
	idle(t, r)
}

// TestJoiningIsChecked: names are unique, an instance that cannot work with the others is not
// taken, one that does not answer yet is, and a reload keeps who joined.
func TestJoiningIsChecked(t *testing.T) {
	d0, d1, odd := newInstance(t, "d0", "x"), newInstance(t, "d1", "x"), newInstance(t, "odd", "y")
	r := fleet(t, nil, []*fakeInstance{d0})
	ctx := t.Context()
	if err := r.Join(ctx, placement.Decode, d0.endpoint()); err == nil {
		t.Error("a name twice")
	}
	err := r.Join(ctx, placement.Decode, odd.endpoint())
	if err == nil || !strings.Contains(err.Error(), "page_size is y here and x there") {
		t.Errorf("a misfit: %v", err)
	}
	d1.server.Close()
	if err := r.Join(ctx, placement.Decode, d1.endpoint()); err != nil {
		t.Errorf("one that is not up yet: %v", err)
	}
	if err := r.Replace(nil, []Endpoint{d0.endpoint(), {"d2", "http://127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range r.Instances() {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"d0", "d2", "d1"}) {
		t.Errorf("%v", names)
	}
	for n := len(names); n < MaxInstances; n++ {
		e := Endpoint{"more" + strings.Repeat("x", n), "http://127.0.0.1:1"}
		r.mu.Lock()
		r.roster.joined[placement.Decode] = append(r.roster.joined[placement.Decode], e)
		r.mu.Unlock()
	}
	err = r.Join(ctx, placement.Decode, Endpoint{"last", "http://127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "the most") {
		t.Errorf("beyond the bound: %v", err)
	}
}

// TestScenario75EqualLoadGoesToTheFirst, and the counters are 0 after a success, an error and a
// client that left.
func TestScenario75EqualLoadGoesToTheFirst(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	if _, _, err := ask(t.Context(), r); err != nil || d1.seen() != "" {
		t.Fatalf("%v; the second saw %q", err, d1.seen())
	}
	idle(t, r)
	d0.set(func() {
		d0.fail[openai.PathStartGenerate] = openai.Errorf(openai.CodeInvalidValue, "", "no")
	})
	if _, _, err := ask(t.Context(), r); err == nil {
		t.Error("an error was lost")
	}
	idle(t, r)
	d0.set(func() {
		d0.fail = map[string]*openai.Error{}
		d0.block[openai.PathStartGenerate] = true
	})
	ctx, leave := context.WithCancel(t.Context())
	s, err := r.Generate(ctx, generation.Request{Prompt: []int32{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	leave()
	for err == nil {
		_, err = s.Next(t.Context())
	}
	for range s.(*stream).updates { // It is closed once all is counted down.
	}
	idle(t, r)
}
