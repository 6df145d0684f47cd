package transfer

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvrelay/engine/host/transfer/nearby"
)

// Where there is no nearer way, or it cannot be gone, TCP carries all the same.
func TestFallsBackToTCP(t *testing.T) {
	if !nearby.HasUnix {
		t.Skip("no unix sockets")
	}
	for name, change := range map[string]options{
		"the receiver has none": func(ro *ReceiverOptions, _ *SenderOptions) {
			ro.Nearby.Close()
			ro.Nearby = nil
		},
		"the sender looks elsewhere": func(_ *ReceiverOptions, so *SenderOptions) {
			so.Folder = nearbyFolder(t)
		},
		"the sender has no folder": func(_ *ReceiverOptions, so *SenderOptions) {
			so.Folder = ""
		},
		"the folder is open to others": func(_ *ReceiverOptions, so *SenderOptions) {
			if err := os.Chmod(so.Folder, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"the socket is gone": func(ro *ReceiverOptions, so *SenderOptions) {
			if err := os.Remove(filepath.Join(so.Folder, ro.Nearby.Name())); err != nil {
				t.Fatal(err)
			}
		},
		"TCP is preferred": func(_ *ReceiverOptions, so *SenderOptions) {
			so.Transports = []Transport{TCP, Shared}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, smallShape, func(ro *ReceiverOptions, so *SenderOptions) {
				so.Transports = []Transport{Shared, Unix, TCP}
				change(ro, so)
			})
			if r.move(t, "a", 100); r.by != TCP {
				t.Errorf("carried by %s", r.by)
			}
		})
	}
}

// A transport that is not allowed is not used, whatever it costs.
func TestOnlyWhatIsAllowed(t *testing.T) {
	r := newRigWith(t, smallShape, func(ro *ReceiverOptions, so *SenderOptions) {
		so.Transports = []Transport{Shared}
		if ro.Nearby != nil {
			ro.Nearby.Close()
			ro.Nearby = nil
		}
	})
	text, err := r.receiver.Grant("a", fourSlots())
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.sender.Parse(text, Window{End: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.sender.Open("a", m); err != nil {
		t.Fatal(err)
	}
	e := <-r.heard
	if e.Kind != Failed || !strings.Contains(e.Err.Detail, "only [shm] are allowed") {
		t.Fatalf("%v %v", e.Kind, e.Err)
	}
	for _, list := range [][]Transport{{}, {"pigeon"}} {
		if _, err := NewSender(SenderOptions{Models: []Model{r.from}, Transports: list,
			Events: func(Event) {}}); err == nil {
			t.Errorf("%v was taken", list)
		}
	}
}

// A receiver that does not know the question, and closes over it, is dialled again without.
func TestReceiverThatDoesNotKnowTheQuestion(t *testing.T) {
	var asked atomic.Int32
	r := newRigWith(t, smallShape, func(ro *ReceiverOptions, so *SenderOptions) {
		so.Transports = []Transport{Shared, TCP}
		old, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		behind := ro.Address
		ro.Address = old.Addr().String()
		t.Cleanup(func() { old.Close() })
		go func() {
			for {
				conn, err := old.Accept()
				if err != nil {
					return
				}
				if asked.Add(1) == 1 {
					_, _ = io.ReadFull(conn, make([]byte, headerSize))
					conn.Close()
					continue
				}
				on, err := net.Dial("tcp", behind)
				if err != nil {
					conn.Close()
					continue
				}
				go func() { _, _ = io.Copy(on, conn); on.Close() }()
				go func() { _, _ = io.Copy(conn, on); conn.Close() }()
			}
		}()
	})
	if r.move(t, "a", 100); r.by != TCP || asked.Load() != 2 {
		t.Errorf("carried by %s after %d connections", r.by, asked.Load())
	}
}

// A receiver that dies in the middle is noticed at once by every transport.
func TestReceiverDiesInTheMiddle(t *testing.T) {
	overEach(t, smallShape, func(t *testing.T, r *rig) {
		w := Window{End: 100}
		text, err := r.receiver.Grant("a", Reservation{
			Window: w, Segments: [][]Segment{{{Slot: 0, Count: 100}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.sender.Parse(text, w)
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.sender.Open("a", m)
		if err != nil {
			t.Fatal(err)
		}
		r.wait(t, Opened, Sending)
		if err := out.Send(0, 0, 100, firstPages(25)); err != nil {
			t.Fatal(err)
		}
		r.receiver.Close()
		for e := range r.heard {
			if e.Direction == Sending {
				if e.Kind != Failed || e.Err.Reason != Reset {
					t.Errorf("%v %v", e.Kind, e.Err)
				}
				return
			}
		}
	})
}

// A sender that dies leaves its sealed chunks to the next, which may be of another process and come
// by another transport.
func TestAnotherSenderResumes(t *testing.T) {
	overEach(t, smallShape, func(t *testing.T, r *rig) {
		w := Window{End: 100}
		text, err := r.receiver.Grant("a", Reservation{
			Window: w, Segments: [][]Segment{{{Slot: 0, Count: 100}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		open := func(s *Sender) *Outgoing {
			m, err := s.Parse(text, w)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Open("a", m)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		first := open(r.sender)
		r.wait(t, Opened, Sending)
		sendAll(t, first, 40)
		first.SealChunk(40)
		for from := 0; from != 40; runtime.Gosched() {
			r.receiver.mu.Lock()
			from = r.receiver.ledger.byID["a"].from
			r.receiver.mu.Unlock()
		}
		sendAll(t, first, 60)
		first.Cancel()
		for ended := 0; ended < 2; { // Both ends say so.
			if e := <-r.heard; e.Kind == Failed {
				ended++
			}
		}
		for r.receiver.Leases().Granted != 1 { // The writer's connection closes.
			runtime.Gosched()
		}
		for _, slot := range pagesOf(r.to).slotsOf(40, 60) {
			delete(pagesOf(r.to).writes, slot)
		}
		other, err := NewSender(SenderOptions{Models: []Model{r.from},
			Events: func(e Event) { r.heard <- e }})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		second := open(other)
		if e := r.wait(t, Opened, Sending); e.From != 40 {
			t.Fatalf("resumes at %d", e.From)
		}
		sendAll(t, second, 100)
		second.Seal()
		if e := r.wait(t, Done, Sending); e.Bytes != 60*3*8 {
			t.Errorf("%d bytes sent again", e.Bytes)
		}
		var slots []int
		for i := range 100 {
			slots = append(slots, i)
		}
		r.sameKV(t, 0, firstPages(25), slots)
	})
}

func sendAll(t *testing.T, out *Outgoing, end int) {
	t.Helper()
	for layer := range smallShape.layers {
		if err := out.Send(0, layer, end, firstPages(25)); err != nil {
			t.Fatal(err)
		}
	}
}

// slotsOf is the keys of writes of slots [from, to) in all layers.
func (p *fakePages) slotsOf(from, to int) (keys [][2]int) {
	for layer := range p.layers {
		for slot := from; slot < to; slot++ {
			keys = append(keys, [2]int{layer, slot})
		}
	}
	return keys
}
