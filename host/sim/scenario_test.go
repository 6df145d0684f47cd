package sim

import (
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer"
)

// The numbers are those of the scenarios in the protocol's specification; README.md says where each
// is tested.

// A prompt in three chunks is sent: one answer, at the end, that counts the chunks and no output.
func TestScenario55OneAnswerForThreeChunks(t *testing.T) {
	s := newStage(t, nil)
	a := ask("a", prompt(1, 301), 4)
	sent := s.send(a, s.prepare(a, -1))
	if sent.Tokens != 300 || sent.Chunks != 3 || sent.Cached != 0 {
		t.Fatalf("sent %+v, want 300 tokens in 3 chunks", sent)
	}
	s.expect(a, s.drain(s.startLater(a, 300)))
	s.settles()
}

// The answer comes after the receiver has all, however late the last bytes are.
func TestScenario56AnswerAfterTheLastByte(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Rate, c.Frame = 4, 64 })
	a := ask("a", prompt(1, 100), 4)
	reserved := s.prepare(a, -1)
	sent := s.sendLater(s.prefill, a, reserved)
	lease := s.decode.leases["r1"]
	whole := lease.count
	s.until("some of it", func() bool { return len(lease.writes) > whole/2 })
	s.link(s.prefill, s.decode).stalledUntil = s.clock.now + 3*time.Second
	s.until("all of it", func() bool {
		if sent.ended() {
			t.Fatalf("answered with %d of %d slots written", len(lease.writes), whole)
		}
		return len(lease.writes) == whole
	})
	s.until("the answer", sent.ended)
	if sent.err != nil || sent.at < 3*time.Second {
		t.Fatalf("answered at %v: %v", sent.at, sent.err)
	}
	s.expect(a, s.drain(s.startLater(a, 99)))
	s.settles()
}

// A send that is given up is an error, and the receiver does not start from what did not come.
func TestScenario57GivenUpIsAnError(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Rate, c.Recompute = 4, false })
	a := ask("a", prompt(1, 300), 4)
	sent := s.sendLater(s.prefill, a, s.prepare(a, -1))
	s.until("its first bytes", func() bool { return len(s.decode.leases["r1"].writes) > 0 })
	sent.cancel()
	s.prefill.kick()
	s.until("the answer", sent.ended)
	if sent.code() != generation.CodeCancelled {
		t.Fatalf("answered %v", sent.err)
	}
	started := s.startLater(a, 299)
	s.until("the refusal", started.ended)
	if started.code() != generation.CodeTransferFailed {
		t.Fatalf("started: %v", started.err)
	}
	s.settles()
}

// What was found is counted apart from what was computed.
func TestScenario58MatchedAndComputed(t *testing.T) {
	s := newStage(t, nil)
	a := ask("a", prompt(1, 100), 4)
	s.send(a, s.prepare(a, -1))
	s.expect(a, s.drain(s.startLater(a, 99)))
	b := ask("b", append(prompt(1, 100), prompt(2, 50)...), 4)
	reserved := s.prepare(b, -1)
	if reserved.Matched < 99 {
		t.Fatalf("%d matched at the receiver, at least 99 were there", reserved.Matched)
	}
	sent := s.send(b, reserved)
	if sent.Cached != 99 || sent.Tokens != 149-reserved.Matched {
		t.Fatalf("sent %+v: 99 were there, %d to send", sent, 149-reserved.Matched)
	}
	out := s.drain(s.startLater(b, 149))
	s.expect(b, out)
	if out.last.Report.Cached != reserved.Matched {
		t.Fatalf("reported %d found, %d were", out.last.Report.Cached, reserved.Matched)
	}
	if s.decode.finished["a"] != 1 || s.decode.finished["b"] != 1 ||
		s.prefill.finished["b"] != 1 {
		t.Fatalf("finished %v and %v, each must once", s.decode.finished, s.prefill.finished)
	}
	s.settles()
}

// A reader that does not look makes nobody wait, and finds all in order when it does.
func TestScenario59SlowReader(t *testing.T) {
	s := newStage(t, nil)
	slow, quick := ask("slow", prompt(1, 20), 30), ask("quick", prompt(2, 20), 30)
	unread := s.generateLater(s.decode, slow)
	s.expect(quick, s.drain(s.generateLater(s.decode, quick)))
	s.pass(time.Minute)
	s.expectPages(s.decode, pages{free: 257 - 8, evictable: 8})
	s.expect(slow, s.drain(unread))
	s.settles()
}

// What was delivered is found, also before it is started.
func TestScenario64MatchableOnceDelivered(t *testing.T) {
	s := newStage(t, nil)
	a, b := ask("a", prompt(1, 100), 4), ask("b", prompt(1, 100), 4)
	reserved := s.prepare(a, -1)
	early := s.prepare(ask("early", prompt(1, 100), 4), -1)
	if early.Matched != 0 {
		t.Fatalf("%d matched before anything came", early.Matched)
	}
	s.send(a, reserved)
	if late := s.prepare(b, -1); late.Matched < 96 {
		t.Fatalf("%d matched of what was delivered", late.Matched)
	}
	for _, id := range []string{"a", "b", "early"} {
		s.decode.stepper.Release(id)
	}
	s.decode.kick()
	s.settles()
}

// A reservation may be larger than what a step computes.
func TestScenario65LargerThanAStep(t *testing.T) {
	s := newStage(t, nil)
	a := ask("a", prompt(1, 1000), 4)
	reserved := s.prepare(a, -1)
	s.expectPages(s.decode, pages{free: 257 - 63, held: 63})
	if sent := s.send(a, reserved); sent.Chunks != 8 {
		t.Fatalf("sent %+v, want 8 chunks", sent)
	}
	s.expect(a, s.drain(s.startLater(a, 999)))
	s.settles()
}

// A reservation that is dropped gives its pages back at once if nobody writes them, and otherwise
// when the writer is fenced; until then they are nobody's.
func TestScenario66DroppedReservation(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Rate, c.Frame = 4, 64 })
	all := pages{free: 257}
	a := ask("a", prompt(1, 100), 4)
	s.prepare(a, -1)
	s.expectPages(s.decode, pages{free: 250, held: 7})
	s.decode.stepper.Release("a")
	s.decode.kick()
	s.until("pages back", func() bool { return s.pages(s.decode) == all })

	sent := s.sendLater(s.prefill, a, s.prepare(a, -1))
	s.until("a writer", func() bool { return leases(s.decode).Writing == 1 })
	s.pass(50 * time.Millisecond)
	s.link(s.prefill, s.decode).stalledUntil = s.clock.now + 2*time.Second
	s.decode.stepper.Release("a")
	s.decode.kick()
	s.until("quarantine", func() bool { return s.pages(s.decode).quarantined == 7 })
	if got := leases(s.decode); got != (transfer.LeaseCounts{Quarantined: 1}) {
		t.Fatalf("leases %+v", got)
	}
	s.until("the sender's answer", sent.ended)
	if sent.err == nil {
		t.Fatal("the send to a dropped reservation was answered as if it had arrived")
	}
	s.until("pages back", func() bool { return s.pages(s.decode) == all })
	s.settles()
}

// A reservation that nobody writes to runs out: a later send and a later start find nothing.
func TestScenario67LeaseRunsOut(t *testing.T) {
	s := newStage(t, nil)
	a := ask("a", prompt(1, 100), 4)
	reserved := s.prepare(a, -1)
	s.pass(s.config.Lease + s.config.Lease/2)
	s.expectPages(s.decode, pages{free: 257})
	sent := s.sendLater(s.prefill, a, reserved)
	s.until("the refusal of the send", sent.ended)
	started := s.startLater(a, 99)
	s.until("the refusal of the start", started.ended)
	if sent.code() != generation.CodeReservationNotFound ||
		started.code() != generation.CodeReservationNotFound {
		t.Fatalf("sent: %v; started: %v", sent.err, started.err)
	}
	s.settles()
}

// Where a decode finds no page the last admitted gives way, and goes on later without saying
// anything twice.
func TestScenario71GivesWayAndGoesOn(t *testing.T) {
	s := newStage(t, func(c *Config) {
		c.Instances[1].Pages = 12
		c.Context = 160
	})
	a, b := ask("a", prompt(1, 60), 90), ask("b", prompt(2, 60), 90)
	first, second := s.generateLater(s.decode, a), s.generateLater(s.decode, b)
	s.expect(a, s.drain(first))
	s.expect(b, s.drain(second))
	if s.decode.scheduler.Stats().Preempted == 0 {
		t.Fatal("nobody gave way: the pool is too large for what is tested here")
	}
	s.settles()
}

// Without a reservation a start from the beginning is an ordinary request, any other is refused.
func TestScenario72StartWithoutReservation(t *testing.T) {
	s := newStage(t, nil)
	a := ask("a", prompt(1, 100), 4)
	s.expect(a, s.drain(s.startLater(a, 0)))
	b := s.startLater(ask("b", prompt(1, 100), 4), 50)
	s.until("the refusal", b.ended)
	if b.code() != generation.CodeReservationNotFound {
		t.Fatalf("started: %v", b.err)
	}
	s.settles()
}

// One instance is both ends, under one ID.
func TestScenario74Loopback(t *testing.T) {
	s := newStage(t, func(c *Config) {
		c.Instances = c.Instances[:1]
		c.Instances[0].Decode = true
	})
	a := ask("a", prompt(1, 100), 4)
	s.send(a, s.prepare(a, -1))
	s.expect(a, s.drain(s.startLater(a, 99)))
	s.settles()
}

// A reset in the middle of a send keeps what is being read and forgets all else; when the send is
// over and forgotten too, nothing is left.
func TestScenario80ResetDuringASend(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Rate = 20 })
	old := ask("old", prompt(2, 64), 2)
	s.expect(old, s.drain(s.generateLater(s.prefill, old)))
	a := ask("a", prompt(1, 300), 4)
	sent := s.sendLater(s.prefill, a, s.prepare(a, -1))
	s.until("its first bytes", func() bool { return len(s.decode.leases["r1"].writes) > 0 })
	s.prefill.reset()
	s.until("nothing evictable", func() bool { return s.pages(s.prefill).evictable == 0 })
	if p := s.pages(s.prefill); p.held == 0 || sent.ended() {
		t.Fatalf("pages %+v after a reset in the middle of a send", p)
	}
	s.until("the send's end", sent.ended)
	if sent.err != nil {
		t.Fatal(sent.err)
	}
	s.expect(a, s.drain(s.startLater(a, 299)))
	s.prefill.reset()
	s.until("pages back", func() bool { return s.pages(s.prefill) == pages{free: 257} })
	s.prefill.scheduler.Cached(0, func([]int32, int, kvcache.PageID) {
		t.Error("the prefix tree is not empty")
	})
	s.settles()
}
