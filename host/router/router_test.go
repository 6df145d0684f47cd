package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// ask sends a prompt of four tokens and reads the answer to its end.
func ask(ctx context.Context, r *Router) ([]int32, generation.Update, error) {
	s, err := r.Generate(ctx, generation.Request{Prompt: []int32{1, 2, 3, 4}, MaxTokens: 3})
	if err != nil {
		return nil, generation.Update{}, err
	}
	var got []int32
	for {
		u, err := s.Next(ctx)
		got = append(got, u.Tokens...)
		if err != nil || u.Finish != "" {
			for range s.(*stream).updates { // It is closed once all is counted down.
			}
			return got, u, err
		}
	}
}

// idle checks that no request counts as in flight any more.
func idle(t *testing.T, r *Router) {
	t.Helper()
	for _, i := range r.snapshot() {
		if i.InFlight != 0 {
			t.Errorf("%s %s: %d in flight", i.Role, i.Name, i.InFlight)
		}
	}
}

func (r *Router) snapshot() []placement.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool.Snapshot()
}

func TestTheThreeCalls(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	if fault := r.Ready(); fault != nil {
		t.Fatal(fault)
	}
	got, last, err := ask(t.Context(), r)
	if err != nil || !slices.Equal(got, tokens) {
		t.Fatalf("tokens %v, error %v", got, err)
	}
	if last.Finish != generation.FinishLength || last.Report.Cached != 2 {
		t.Errorf("last update %+v", last)
	}
	if d.seen() != "prep_recv start_generate" || p.seen() != "remote_send" {
		t.Errorf("calls: decode %q, prefill %q", d.seen(), p.seen())
	}
	prep, send, start := d.bodies["prep_recv"], p.bodies["remote_send"], d.bodies["start_generate"]
	if prep.User == "" || prep.User != send.User || send.User != start.User {
		t.Errorf("ids %q %q %q", prep.User, send.User, start.User)
	}
	if *prep.End != 3 || *send.Begin != 1 || *send.End != 3 || send.KVAddrInfo != "m" ||
		*start.Begin != 3 {
		t.Errorf("windows: prep %d, send %d to %d %q, start %d",
			*prep.End, *send.Begin, *send.End, send.KVAddrInfo, *start.Begin)
	}
	idle(t, r)
}

func TestALostPrefillIsTheDecodeInstancesBusiness(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	p.server.Close()
	got, _, err := ask(t.Context(), r)
	if err != nil || !slices.Equal(got, tokens) || *d.bodies["start_generate"].Begin != 3 {
		t.Fatalf("tokens %v, error %v", got, err)
	}
	idle(t, r)
	for range placement.DownAfter {
		r.checkAll(t.Context())
	}
	if got, _, err = ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
		t.Fatalf("without a prefill instance: tokens %v, error %v", got, err)
	}
	if *d.bodies["start_generate"].Begin != 0 {
		t.Error("the decode instance was not asked to compute the whole prompt")
	}
}

// TestALostTransferIsNotTheClientsFault: where the decode instance does not compute itself what
// never came, the client is told that the transfer failed and why, by no id of ours.
func TestALostTransferIsNotTheClientsFault(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*fakeInstance)
		why   string
	}{
		"gone": {func(p *fakeInstance) { p.server.Close() }, "remote_send"},
		"unlike": {func(p *fakeInstance) {
			p.fail[openai.PathRemoteSend] = openai.Errorf(openai.CodeIncompatibleInstance, "",
				"numerics: here fma, there tdp")
		}, "numerics: here fma, there tdp"},
		"sent": {func(*fakeInstance) {}, "have not been delivered"},
	} {
		p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
		p.set(func() { c.spoil(p) })
		d.set(func() { d.undelivered = true })
		_, _, err := ask(t.Context(), r)
		fault, ok := errors.AsType[*generation.Error](err)
		if !ok || fault.Code != generation.CodeTransferFailed ||
			openai.Lookup(openai.Code(fault.Code)).Status != 503 {
			t.Fatalf("%s: error %v", name, err)
		}
		if !strings.Contains(fault.Message, c.why) || strings.Contains(fault.Message, "router-") {
			t.Errorf("%s: message %q", name, fault.Message)
		}
		if !containsCall(d, openai.PathRelease) {
			t.Errorf("%s: the reservation was not released: %q", name, d.seen())
		}
		idle(t, r)
	}
}

func TestAnotherInstanceIsTried(t *testing.T) {
	full := openai.Errorf(openai.CodeQueueFull, "", "full")
	for name, spoil := range map[string]func(*fakeInstance){
		"gone":              func(f *fakeInstance) { f.server.Close() },
		"full at prep_recv": func(f *fakeInstance) { f.fail[openai.PathPrepareReceive] = full },
		"full at start":     func(f *fakeInstance) { f.fail[openai.PathStartGenerate] = full },
	} {
		p, d0, d1 := newInstance(t, "p0", "x"), newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d0, d1})
		d0.set(func() { spoil(d0) })
		got, _, err := ask(t.Context(), r)
		if err != nil || !slices.Equal(got, tokens) || d1.seen() != "prep_recv start_generate" {
			t.Errorf("%s: tokens %v, error %v, second instance saw %q", name, got, err, d1.seen())
		}
		idle(t, r)
	}
}

func TestARefusalIsHandedOn(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	d0.set(func() {
		d0.fail[openai.PathStartGenerate] = openai.Errorf(openai.CodeContextLength, "prompt",
			"long")
	})
	_, _, err := ask(t.Context(), r)
	var fault *generation.Error
	if !errors.As(err, &fault) || fault.Code != generation.CodeContextLength ||
		fault.Param != "prompt" {
		t.Fatalf("error %v", err)
	}
	if d1.seen() != "" {
		t.Errorf("a refusal was tried elsewhere: %q", d1.seen())
	}
	idle(t, r)
}

// TestAClientThatLeaves cancels in each of the calls: the call ends, the reservation is released.
func TestAClientThatLeaves(t *testing.T) {
	for _, at := range []string{openai.PathRemoteSend, openai.PathStartGenerate} {
		p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
		blocked := d
		if at == openai.PathRemoteSend {
			blocked = p
		}
		blocked.set(func() { blocked.block[at] = true })
		ctx, cancel := context.WithCancel(t.Context())
		s, err := r.Generate(ctx, generation.Request{Prompt: []int32{1, 2, 3}})
		if err != nil {
			t.Fatal(err)
		}
		for !containsCall(blocked, at) { // It is on its way.
			if ctx.Err() != nil {
				t.Fatal(ctx.Err())
			}
		}
		cancel()
		<-blocked.gone
		for _, err = s.Next(context.Background()); err == nil; {
			_, err = s.Next(context.Background())
		}
		if !containsCall(d, openai.PathRelease) {
			t.Errorf("%s: the reservation was not released: %q", at, d.seen())
		}
		idle(t, r)
	}
}

func containsCall(f *fakeInstance, url string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, seen := f.bodies[url[len("/microserving/"):]]
	return seen
}

func TestInstancesThatDoNotFitAreRefused(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "16"), newInstance(t, "d1", "32")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	for range placement.DownAfter {
		r.checkAll(t.Context())
	}
	up := 0
	for _, i := range r.snapshot() {
		if i.Up {
			up++
		}
	}
	if up != 1 {
		t.Fatalf("%d of two instances with unlike pages are up, want 1", up)
	}
	if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
		t.Fatalf("tokens %v, error %v", got, err)
	}
}

func TestNoInstance(t *testing.T) {
	d := newInstance(t, "d0", "x")
	d.server.Close()
	r := fleet(t, nil, []*fakeInstance{d})
	if fault := r.Ready(); fault == nil {
		t.Error("a router that met nobody is ready")
	}
	for range placement.DownAfter {
		r.checkAll(t.Context())
	}
	if fault := r.Ready(); fault == nil || fault.Code != openai.CodeNoHealthyDecode {
		t.Errorf("ready: %v", fault)
	}
	_, _, err := ask(t.Context(), r)
	var fault *generation.Error
	if !errors.As(err, &fault) || fault.Code != generation.CodeNoDecode {
		t.Errorf("error %v", err)
	}
}

// TestASilentPrefill holds the prefill instance still in the middle of its call, its connections
// open: the request goes on without it.
func TestASilentPrefill(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	r.options.ConnectTimeout = 20 * time.Millisecond
	p.set(func() { p.block[openai.PathRemoteSend], p.block["/live"] = true, true })
	got, _, err := ask(t.Context(), r)
	if err != nil || !slices.Equal(got, tokens) {
		t.Fatalf("tokens %v, error %v", got, err)
	}
	idle(t, r)
}

// TestASlowPrefill takes many times as long as silence is borne, and answers /live meanwhile.
func TestASlowPrefill(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	r.options.ConnectTimeout = 20 * time.Millisecond
	p.set(func() { p.slow = make(chan struct{}) })
	go func() {
		for range 4 * mostSilences {
			<-p.asked // Each question was answered.
		}
		close(p.slow)
	}()
	got, _, err := ask(t.Context(), r)
	if err != nil || !slices.Equal(got, tokens) || d.seen() != "prep_recv start_generate" {
		t.Fatalf("tokens %v, error %v, calls %q", got, err, d.seen())
	}
}

// TestASilentDecode holds the decode instance still in each of its calls: another one is tried, and
// without another one the client is told.
func TestASilentDecode(t *testing.T) {
	for _, at := range []string{openai.PathPrepareReceive, openai.PathStartGenerate} {
		p, d0, d1 := newInstance(t, "p0", "x"), newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d0, d1})
		r.options.ConnectTimeout = 20 * time.Millisecond
		d0.set(func() {
			d0.block[at], d0.block["/live"], d0.block[openai.PathRelease] = true, true, true
		})
		got, _, err := ask(t.Context(), r)
		if err != nil || !slices.Equal(got, tokens) {
			t.Fatalf("%s: tokens %v, error %v", at, got, err)
		}
		d1.server.Close()
		_, _, err = ask(t.Context(), r)
		var fault *generation.Error
		if !errors.As(err, &fault) || fault.Code != generation.CodeTransferFailed {
			t.Errorf("%s: error %v", at, err)
		}
		idle(t, r)
	}
}

// TestClose ends a request in the middle with the reason, not as if the client had left.
func TestClose(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	d.set(func() { d.block[openai.PathStartGenerate] = true })
	s, err := r.Generate(t.Context(), generation.Request{Prompt: []int32{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	for !containsCall(d, openai.PathStartGenerate) { // It is on its way.
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	r.Close()
	_, err = s.Next(t.Context())
	var fault *generation.Error
	if !errors.As(err, &fault) || fault.Code != generation.CodeDraining {
		t.Errorf("error %v", err)
	}
	<-d.gone
}
