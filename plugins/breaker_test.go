package plugins

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	rules := DefaultRules()
	var b breaker
	for i := range 10 { // Two a minute are borne for ever.
		if b.fault(time.Duration(i)*31*time.Second, &rules, false) {
			t.Fatalf("fault %d sets it aside", i)
		}
	}
	now := 600 * time.Second
	for i, want := range []time.Duration{0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		now = max(now, b.until) + time.Millisecond
		opened := b.fault(now, &rules, false)
		if opened != (want > 0) || b.pause != want*time.Second {
			t.Fatalf("fault %d: %v, set aside for %v, want %v s", i, opened, b.pause, want)
		}
		if !staged(b, now, want*time.Second) {
			t.Fatalf("fault %d: until %v at %v", i, b.until, now)
		}
	}
	for range rules.CleanSteps - 1 {
		if b.ok(&rules) {
			t.Fatal("trusted too early")
		}
	}
	if !b.ok(&rules) || b.stage(now) != Closed || b.pause != 0 {
		t.Fatalf("not trusted again: %+v", b)
	}
}

// staged checks that a breaker is open until the pause is over and half open then; closed when
// there is none.
func staged(b breaker, now, pause time.Duration) bool {
	if pause == 0 {
		return b.stage(now) == Closed
	}
	end := now + pause
	return b.stage(now) == Open && b.stage(end-1) == Open && b.stage(end) == HalfOpen
}

// TestBreakerRules: the numbers are the operator's; one grave fault suffices; a fault in probation
// starts it anew.
func TestBreakerRules(t *testing.T) {
	rules := Rules{Faults: 2, Window: time.Second, Backoff: time.Minute, BackoffMax: time.Second,
		CleanSteps: 3}.withDefaults()
	var b breaker
	if b.fault(0, &rules, false) || !b.fault(time.Second, &rules, false) || b.pause != time.Minute {
		t.Fatalf("two in a second: %+v", b)
	}
	clean := func(n int) (closed bool) {
		for range n {
			closed = b.ok(&rules)
		}
		return closed
	}
	if clean(2) || !b.fault(time.Hour, &rules, false) || clean(2) || !clean(1) {
		t.Fatal("three clean steps in a row end the probation, a fault starts it anew")
	}
	if !b.fault(time.Hour, &rules, true) {
		t.Fatal("a grave one does not set it aside")
	}
}

func TestPace(t *testing.T) {
	const soft = 300 * time.Microsecond
	count := func(each func(i int) time.Duration) (slow, stuck int) {
		var p pace
		for i := range 10 * paceWindow {
			s, k := p.took(each(i), soft, true)
			if s {
				slow++
			}
			if k {
				stuck++
			}
		}
		return slow, stuck
	}
	for _, c := range []struct {
		name        string
		each        func(i int) time.Duration
		slow, stuck int
	}{
		{"quick", func(int) time.Duration { return soft }, 0, 0},
		{"one in 128", func(i int) time.Duration { return soft + time.Duration(i%128/127) }, 0, 0},
		{"one in 64", func(i int) time.Duration { return soft + time.Duration(i%64/63) }, 10, 0},
		{"all a little", func(int) time.Duration { return soft + 1 }, 10, 0},
		{"far too slow", func(int) time.Duration { return 10*soft + 1 }, 0, 80},
		{"half of them", func(i int) time.Duration { return time.Duration(i%2) * time.Second },
			10, 0},
	} {
		if slow, stuck := count(c.each); slow != c.slow || stuck != c.stuck {
			t.Errorf("%s: %d slow, %d stuck; want %d and %d", c.name, slow, stuck, c.slow, c.stuck)
		}
	}
}

// TestPaceBlamesNoMachine: a call that waited for a processor makes its module a suspect, whose
// calls are measured from then on; only what is measured is held against it.
func TestPaceBlamesNoMachine(t *testing.T) {
	const soft = 300 * time.Microsecond
	for _, c := range []struct {
		name       string
		wall, used time.Duration
		slow       int
		stuck      bool
	}{
		{"a busy machine", 2 * soft, soft / 100, 0, false},
		{"a very busy machine", 1000 * soft, soft, 0, false},
		{"a slow module", 2 * soft, 2 * soft, 9, false},
		{"a stuck module", 1000 * soft, 1000 * soft, 0, true},
	} {
		var p pace
		slow, stuck, unmeasured := 0, false, 0
		for range 10 * paceWindow {
			took, measured := c.wall, p.suspect
			if measured {
				took = c.used
			} else {
				unmeasured++
			}
			s, k := p.took(took, soft, measured)
			if s {
				slow++
			}
			stuck = stuck || k
		}
		if slow != c.slow || stuck != c.stuck || unmeasured == 0 {
			t.Errorf("%s: %d windows are slow, stuck %v, %d calls not measured", c.name, slow,
				stuck, unmeasured)
		}
	}
}

// TestWatch: a suspect's call is judged by the processor's time, which a wait does not use.
func TestWatch(t *testing.T) {
	if !threadTimed {
		t.Skip("no clock of a thread here")
	}
	p := pace{suspect: true}
	w := p.watch()
	for begin := threadTime(); threadTime()-begin < 2*time.Millisecond; {
	}
	wall, judged := w.end()
	if judged < 2*time.Millisecond || judged > wall+time.Millisecond {
		t.Errorf("%v by the wall, judged by %v", wall, judged)
	}
	w = p.watch()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
		}
	}()
	<-done
	if wall, judged = w.end(); wall < 20*time.Millisecond || judged > wall/2 {
		t.Errorf("while it waited for %v, judged by %v", wall, judged)
	}
}
