package sim

import (
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/placement"
)

// arrives lets a client come now.
func (s *stage) arrives(a Ask) *client {
	c := s.newClient(len(s.clients), &a)
	s.clients = append(s.clients, c)
	s.open++
	s.clock.after(0, c.arrive)
	return c
}

func (s *stage) inFlight() (count int) {
	for _, i := range s.pool.Snapshot() {
		count += i.InFlight
	}
	return count
}

// Of two decoders that are equal the first is taken, then the other; what was counted in flight is
// counted down after a good end, an error, a client that left and a preemption.
func TestScenario75LeastLoaded(t *testing.T) {
	s := newStage(t, func(c *Config) {
		second := c.Instances[1]
		c.Instances = append(c.Instances, second)
		c.Recompute, c.Retries = false, 0
	})
	first := s.arrives(Ask{Request: ask("first", prompt(1, 50), 40), Way: Handoff, End: -1})
	second := s.arrives(Ask{Request: ask("second", prompt(2, 50), 40), Way: Handoff, End: -1})
	third := s.arrives(Ask{Request: ask("third", prompt(3, 50), 40), Way: Handoff, End: -1})
	s.until("all three are placed", func() bool { return third.names > 0 })
	for c, want := range map[*client]string{first: "i1", second: "i2", third: "i1"} {
		if got := c.ticket.Instance(placement.Decode); got != want {
			t.Errorf("%s is on %s, want %s", c.id(), got, want)
		}
	}
	s.until("the third streams", func() bool { return len(third.got) > 0 })
	third.leave()
	s.strike(Fault{Kind: Kill, Instance: 2, For: time.Second}) // The second ends with an error.
	s.until("all have ended", func() bool { return first.ended && second.ended && third.ended })
	if first.failure != nil || second.failure == nil || s.inFlight() != 0 {
		t.Fatalf("first: %v, second: %v, %d in flight", first.failure, second.failure, s.inFlight())
	}
	s.settles()
}

// A client that leaves in any phase leaves nothing behind on any instance.
func TestScenario76ClientLeaves(t *testing.T) {
	for _, phase := range []string{"preparing", "sending", "starting", "streaming"} {
		t.Run(phase, func(t *testing.T) {
			s := newStage(t, func(c *Config) { c.Rate, c.Frame = 50, 256 })
			c := s.arrives(Ask{Request: ask("a", prompt(1, 200), 100), Way: Handoff, End: -1})
			s.until(phase, func() bool { return c.phase == phase })
			if phase == "sending" {
				s.until("bytes", func() bool { return len(s.decode.leases["r1"].writes) > 0 })
			}
			if phase == "streaming" {
				s.until("tokens", func() bool { return len(c.got) > 3 })
			}
			c.leave()
			s.until("pages back at the receiver", func() bool {
				return s.pages(s.decode) == pages{free: 257}
			})
			s.until("nothing referenced at the sender", func() bool {
				p := s.pages(s.prefill)
				return p.held == 0 && p.free+p.evictable == 257
			})
			if s.inFlight() != 0 {
				t.Errorf("%d in flight", s.inFlight())
			}
			s.settles()
		})
	}
}

// A prefill instance that dies in the middle of a transfer: the decode instance computes the rest,
// or the client has an error, as the configuration says; in five seconds either way.
func TestScenario77PrefillDies(t *testing.T) {
	for _, way := range []struct {
		name      string
		recompute bool
		silent    bool
	}{{"recompute", true, false}, {"fail", false, false}, {"recompute, silent", true, true},
		{"fail, silent", false, true}} {
		t.Run(way.name, func(t *testing.T) {
			s := newStage(t, func(c *Config) {
				c.Rate, c.Frame, c.Recompute, c.Retries = 40, 64, way.recompute, 0
			})
			c := s.arrives(Ask{Request: ask("a", prompt(1, 100), 4), Way: Handoff, End: -1})
			s.until("bytes", func() bool {
				l := s.decode.leases["r1"]
				return l != nil && len(l.writes) > 20
			})
			died := s.clock.now
			if way.silent {
				s.strike(Fault{Kind: Pause, For: time.Hour})
			} else {
				s.strike(Fault{Kind: Kill, For: time.Hour})
			}
			s.until("the client's end", func() bool { return c.ended })
			if took := s.clock.now - died; took > 5*time.Second {
				t.Errorf("the client waited for %v", took)
			}
			if failed := c.failure != nil; failed == way.recompute {
				t.Errorf("the client had %v, recompute is %t", c.failure, way.recompute)
			}
			s.settles()
		})
	}
}

// A decode instance that dies after it has reserved: the send fails at once where its connection is
// refused or reset, after the transfer's timeout where nothing is heard; the sender keeps nothing.
func TestScenario78DecodeDies(t *testing.T) {
	for _, way := range []struct {
		name    string
		strike  func(*stage)
		within  time.Duration
		atLeast time.Duration
		sending bool
	}{
		{"refused", func(s *stage) { s.decode.kill() }, 100 * time.Millisecond, 0, false},
		{"reset", func(s *stage) { s.decode.kill() }, 100 * time.Millisecond, 0, true},
		{"silent", func(s *stage) { s.decode.pause() }, 5 * time.Second, 3 * time.Second, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := newStage(t, func(c *Config) { c.Rate, c.Frame = 4, 64 })
			a := ask("a", prompt(1, 100), 4)
			reserved := s.prepare(a, -1)
			if !way.sending {
				way.strike(s)
			}
			began := s.clock.now
			sent := s.sendLater(s.prefill, a, reserved)
			if way.sending {
				s.until("bytes", func() bool { return len(s.decode.leases["r1"].writes) > 20 })
				began = s.clock.now
				way.strike(s)
			}
			s.until("the send's end", sent.ended)
			took := sent.at - began
			if sent.code() != generation.CodeTransferFailed || took > way.within ||
				took < way.atLeast {
				t.Fatalf("after %v: %v", took, sent.err)
			}
			if p := s.pages(s.prefill); p.held != 0 {
				t.Fatalf("the sender keeps %+v", p)
			}
			s.settles()
		})
	}
}

// What is left after the match is not worth a send: it is computed where it is needed.
func TestScenario79ShortRemainder(t *testing.T) {
	s := newStage(t, nil)
	long := Ask{Request: ask("long", prompt(1, 100), 4), Way: Handoff, End: -1, Threshold: 32}
	first := s.arrives(long)
	s.until("the first has ended", func() bool { return first.ended })
	again := long
	again.Request = ask("again", append(prompt(1, 100), prompt(2, 20)...), 4)
	second := s.arrives(again)
	s.until("the second has ended", func() bool { return second.ended })
	if first.senders != 1 || second.senders != 0 || second.failure != nil {
		t.Fatalf("asked %d and %d senders: %v", first.senders, second.senders, second.failure)
	}
	s.settles()
}
