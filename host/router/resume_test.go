package router

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// TestScenario77AnotherInstanceGoesOn breaks the stream of the first decode instance after each of
// its tokens, and before the word that it was the last: the reader has every token once, the second
// instance was told what is output already, and nothing counts as in flight.
func TestScenario77AnotherInstanceGoesOn(t *testing.T) {
	for cut := 1; cut <= len(tokens)+1; cut++ {
		p, d0, d1 := newInstance(t, "p0", "x"), newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d0, d1})
		d0.set(func() { d0.cut = cut })
		got, last, err := ask(t.Context(), r)
		if err != nil || !slices.Equal(got, tokens) || last.Finish != generation.FinishLength {
			t.Fatalf("cut %d: tokens %v, %+v, error %v", cut, got, last, err)
		}
		idle(t, r)
		if cut >= len(tokens) {
			if d1.seen() != "" {
				t.Errorf("cut %d: there was nothing left, and still %q", cut, d1.seen())
			}
			continue
		}
		start := d1.bodies["start_generate"]
		want := slices.Concat([]int32{1, 2, 3, 4}, tokens[:cut])
		if d1.seen() != "prep_recv start_generate" || start.Emitted != cut ||
			!slices.Equal(start.Prompt.Tokens, want) || *start.Begin != len(want)-1 ||
			start.User == d0.bodies["start_generate"].User {
			t.Errorf("cut %d: %q %+v", cut, d1.seen(), start)
		}
		if send := p.bodies["remote_send"]; !slices.Equal(send.Prompt.Tokens, want) {
			t.Errorf("cut %d: the prefill instance computed %v", cut, send.Prompt.Tokens)
		}
	}
}

// TestScenario77TheOperatorWantsAnError: with transfer.on_failure = "error" a stream that lost its
// instance in the middle ends with what happened, and no other instance hears of it.
func TestScenario77TheOperatorWantsAnError(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	r.options.FailLost = true
	d0.set(func() { d0.cut = 2 })
	got, _, err := ask(t.Context(), r)
	var fault *generation.Error
	if !errors.As(err, &fault) || fault.Code != generation.CodeTransferFailed ||
		!slices.Equal(got, tokens[:2]) || d1.seen() != "" {
		t.Errorf("tokens %v, error %v, the other saw %q", got, err, d1.seen())
	}
	idle(t, r)
}

// TestACutConnectionIsNoLostInstance: the only decode instance lives, its connection was cut. It
// goes on itself.
func TestACutConnectionIsNoLostInstance(t *testing.T) {
	d := newInstance(t, "d0", "x")
	r := fleet(t, nil, []*fakeInstance{d})
	d.set(func() { d.cut = 1 })
	got, _, err := ask(t.Context(), r)
	if err != nil || !slices.Equal(got, tokens) {
		t.Errorf("tokens %v, error %v", got, err)
	}
	if s := r.snapshot(); !s[0].Up {
		t.Errorf("%+v", s)
	}
	idle(t, r)
}

// TestAnotherPrefillInstanceIsTried: a prefill instance that is gone, or full, is no reason to
// burden a decode instance while another one is there.
func TestAnotherPrefillInstanceIsTried(t *testing.T) {
	for name, spoil := range map[string]func(*fakeInstance){
		"gone": func(f *fakeInstance) { f.server.Close() },
		"full": func(f *fakeInstance) {
			f.fail[openai.PathRemoteSend] = openai.Errorf(openai.CodeQueueFull, "", "full")
		},
	} {
		p0, p1, d := newInstance(t, "p0", "x"), newInstance(t, "p1", "x"), newInstance(t, "d", "x")
		r := fleet(t, []*fakeInstance{p0, p1}, []*fakeInstance{d})
		p0.set(func() { spoil(p0) })
		got, _, err := ask(t.Context(), r)
		if err != nil || !slices.Equal(got, tokens) || p1.seen() != "remote_send" ||
			d.seen() != "prep_recv start_generate" {
			t.Errorf("%s: tokens %v, error %v, calls %q, %q", name, got, err, p1.seen(), d.seen())
		}
		if up := r.snapshot()[0].Up; up != (name == "full") {
			t.Errorf("%s: the first is up: %v", name, up)
		}
		idle(t, r)
	}
}

// TestScenario79ShortRemainders: what is in no cache is compared with the threshold, before
// anything is reserved and after the decode instance has said what it knows.
func TestScenario79ShortRemainders(t *testing.T) {
	for _, c := range []struct {
		least        int
		decode, send string
		begin        int
	}{
		{0, "prep_recv start_generate", "remote_send", 3},
		{2, "prep_recv start_generate", "remote_send", 3}, // [1, 3) is in no cache.
		{3, "prep_recv start_generate", "", 1},
		{4, "start_generate", "", 0}, // All that may be sent is [0, 3).
	} {
		p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
		r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
		r.options.Balance.MinRemote = c.least
		got, _, err := ask(t.Context(), r)
		if err != nil || !slices.Equal(got, tokens) || d.seen() != c.decode || p.seen() != c.send ||
			*d.bodies["start_generate"].Begin != c.begin {
			t.Errorf("threshold %d: tokens %v, error %v, calls %q, %q, begin %d", c.least, got, err,
				d.seen(), p.seen(), *d.bodies["start_generate"].Begin)
		}
		idle(t, r)
	}
}

// TestTheTailIsComputedAtTheDecodeInstance: pd_balance moves the border that the calls name.
func TestTheTailIsComputedAtTheDecodeInstance(t *testing.T) {
	p, d := newInstance(t, "p0", "x"), newInstance(t, "d0", "x")
	r := fleet(t, []*fakeInstance{p}, []*fakeInstance{d})
	r.options.Balance = placement.Balance{Share: 0.5}
	if _, _, err := ask(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if *p.bodies["remote_send"].End != 2 || *d.bodies["prep_recv"].End != 2 ||
		*d.bodies["start_generate"].Begin != 2 {
		t.Errorf("prep %d, send %d, start %d", *d.bodies["prep_recv"].End,
			*p.bodies["remote_send"].End, *d.bodies["start_generate"].Begin)
	}
	for _, i := range r.snapshot() {
		if i.Pending != 0 {
			t.Errorf("%+v", i)
		}
	}
}

// TestALostInstanceIsSeenAtOnce: an instance whose process has gone is taken out by the first
// check, one that does not answer gets no new request after one unanswered question, and both are
// back with one answer.
func TestALostInstanceIsSeenAtOnce(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	r.options.ConnectTimeout = 20 * time.Millisecond
	d1.set(func() { d1.block["/live"], d1.block["/ready"] = true, true })
	ctx := t.Context()
	silent := make(chan bool)
	go func() {
		silent <- r.fallsSilent(ctx, watching{url: d1.server.URL, role: placement.Decode,
			name: "d1", silences: 50})
	}()
	for r.snapshot()[1].Up {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	d1.set(func() { d1.block = map[string]bool{} })
	for !r.snapshot()[1].Up {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	d0.server.Close()
	r.checkAll(ctx)
	if s := r.snapshot(); s[0].Up || !s[1].Up {
		t.Errorf("%+v", s)
	}
	d1.set(func() { d1.block["/live"] = true })
	if !<-silent {
		t.Error("it fell silent, and nobody noticed")
	}
}

// TestASuspectIsBetterThanNobody: where a request was lost on the only decode instance that is
// left, the next one still goes there.
func TestASuspectIsBetterThanNobody(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	d1.server.Close()
	r.checkAll(t.Context())
	r.lose(placement.Decode, "d0", errSilent)
	if fault := r.Ready(); fault != nil {
		t.Error(fault)
	}
	if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
		t.Errorf("tokens %v, error %v", got, err)
	}
}

// TestASlowCheckDelaysNoOther: while one instance leaves its check unanswered, another one that was
// suspect is seen to live.
func TestASlowCheckDelaysNoOther(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	r.options.HealthInterval = 5 * time.Millisecond
	r.options.ConnectTimeout = time.Hour
	d0.set(func() { d0.block["/ready"] = true })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	for range 3 {
		r.lose(placement.Decode, "d1", errSilent)
		for !r.snapshot()[1].Up {
			if ctx.Err() != nil {
				t.Fatal(ctx.Err())
			}
		}
	}
	cancel()
	<-ended
}

// TestManyLooksAreNotManyChecks: that several requests ask after an instance at one moment takes it
// out no sooner than the regular round does.
func TestManyLooksAreNotManyChecks(t *testing.T) {
	d := newInstance(t, "d0", "x")
	r := fleet(t, nil, []*fakeInstance{d})
	r.options.ConnectTimeout = 0
	d.set(func() { d.block["/ready"] = true })
	ended := make(chan error)
	for range 2 * placement.DownAfter {
		go func() { ended <- r.look(t.Context(), placement.Decode, "d0") }()
	}
	for range 2 * placement.DownAfter {
		if err := <-ended; err == nil {
			t.Error("a silent instance answered")
		}
	}
	if fault := r.Ready(); fault != nil {
		t.Error(fault)
	}
}

// TestWhatIsRememberedIsHandedOn: an instance that is given up while its events are read takes none
// of its tokens with it. They are not generated again, so the reader must have them; and the reader
// hears of the end, too.
func TestWhatIsRememberedIsHandedOn(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	for whole, try := 0, 0; whole < 4; try++ {
		if try == 10_000 {
			t.Fatal("no answer came whole")
		}
		r := fleet(t, nil, []*fakeInstance{d0, d1})
		r.options.Retries = 50
		// At first every instance falls silent at once, then later and later.
		r.options.ConnectTimeout = time.Duration(try) * 5 * time.Microsecond
		got, last, err := ask(t.Context(), r)
		switch {
		case err == nil && slices.Equal(got, tokens) && last.Finish != "":
			whole++
		case err == nil || len(got) > len(tokens) || !slices.Equal(got, tokens[:len(got)]):
			t.Fatalf("tokens %v, %+v, error %v", got, last, err)
		}
		idle(t, r)
	}
}
