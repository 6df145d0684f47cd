package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// wiring is a receiver and a sender whose connections are pipes in memory, for use in a bubble.
type wiring struct {
	t *testing.T
	ends
	receiver *Receiver
	sender   *Sender
	serve    func(net.Conn) // the far end of each connection
	pipe     func() (near, far net.Conn)

	mu     sync.Mutex
	events []Event
	pipes  []net.Conn // near ends
}

func newWiring(t *testing.T, change options) *wiring {
	w := &wiring{t: t, ends: ends{smallShape.model(), smallShape.model()}, pipe: net.Pipe}
	pagesOf(w.from).fill(1)
	ro := ReceiverOptions{
		Models: []Model{w.to}, Address: "127.0.0.1:7601", Random: chance(1), Events: w.hear,
	}
	so := SenderOptions{Models: []Model{w.from}, Events: w.hear}
	if change != nil {
		change(&ro, &so)
	}
	var err error
	if w.receiver, err = NewReceiver(ro); err != nil {
		t.Fatal(err)
	}
	if w.sender, err = NewSender(so); err != nil {
		t.Fatal(err)
	}
	w.serve = func(conn net.Conn) { w.receiver.Serve(conn, nil) }
	w.sender.connect = func(context.Context, string, string) (net.Conn, error) {
		near, far := w.pipe()
		w.mu.Lock()
		w.pipes = append(w.pipes, near)
		w.mu.Unlock()
		go w.serve(far)
		return near, nil
	}
	return w
}

func (w *wiring) hear(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *wiring) close() {
	w.sender.Close()
	w.receiver.Close()
}

// open grants a lease of tokens slots from slot on and opens a transfer to it.
func (w *wiring) open(id string, slot, tokens int) *Outgoing {
	w.t.Helper()
	window := Window{End: tokens}
	text, err := w.receiver.Grant(id, Reservation{
		Window: window, Segments: [][]Segment{{{slot, tokens}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.sender.Parse(text, window)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.sender.Open(id, m)
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return out
}

func fourSlots() Reservation {
	return Reservation{Window: Window{End: 4}, Segments: [][]Segment{{{0, 4}}}}
}

// firstPages is a page table of the first pages.
func firstPages(n int) (pages []kvcache.PageID) {
	for i := range n {
		pages = append(pages, kvcache.PageID(i))
	}
	return pages
}

func (w *wiring) send(out *Outgoing, tokens int) {
	w.t.Helper()
	for layer := range smallShape.layers {
		if err := out.Send(0, layer, tokens, firstPages(smallShape.pages)); err != nil {
			w.t.Fatal(err)
		}
	}
	out.Seal()
	synctest.Wait()
}

// told is the events so far, sorted: the two ends speak at once.
func (w *wiring) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var words []string
	for _, e := range w.events {
		word := fmt.Sprintf("%v %v %s", e.Direction, e.Kind, e.ID)
		if e.Err != nil {
			word += " " + e.Err.Reason.String()
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// await lets time pass until so many events were heard.
func (w *wiring) await(events int) {
	w.t.Helper()
	for range 100_000 {
		if synctest.Wait(); len(w.told()) >= events {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("%d events expected: %q", events, w.told())
}

func (w *wiring) expect(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if got := w.told(); !slices.Equal(got, want) {
		w.t.Fatalf("events:\n got %q\nwant %q", got, want)
	}
}

func openedBoth(id string) []string {
	return []string{"receive opened " + id, "send opened " + id}
}

// options is what a test changes of both ends' options.
type options func(*ReceiverOptions, *SenderOptions)

// inBubble runs a test over a pipe, on which every byte waits for its reader, and over the rings of
// shared memory, which take many; from pages that are read at once, and from late ones.
func inBubble(t *testing.T, change options, f func(t *testing.T, w *wiring)) {
	for i, pipe := range []func() (near, far net.Conn){net.Pipe, nearby.Pipe, net.Pipe} {
		synctest.Test(t, func(t *testing.T) {
			w := newWiring(t, func(ro *ReceiverOptions, so *SenderOptions) {
				pagesOf(so.Models[0]).late = i > 0
				if change != nil {
					change(ro, so)
				}
			})
			w.pipe = pipe
			defer w.close()
			f(t, w)
		})
	}
}

func TestCarriesOverAConnection(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 20, 30)
		w.send(out, 30)
		w.expect(append(openedBoth("a"), "receive delivered a", "send done a")...)
		for _, e := range w.events {
			want := int64(30 * 3 * 8)
			if e.Kind != Opened && (e.Bytes != want || e.Wire <= want) {
				t.Errorf("%v: %d bytes of KV, want %d, %d in all", e.Kind, e.Bytes, want, e.Wire)
			}
		}
		var slots []int
		for i := range 30 {
			slots = append(slots, 20+i)
		}
		w.sameKV(t, 0, firstPages(40), slots)
		if err := out.Send(0, 0, 30, nil); err == nil {
			t.Error("Send after Seal")
		}
		if c := w.receiver.Leases(); c.Sealed != 1 || !w.receiver.Release("a") {
			t.Errorf("%+v", c)
		}
		if w.sender.Inflight() != 0 || w.sender.Backlog() != 0 || len(w.receiver.all) != 0 {
			t.Error("something is left")
		}
	})
}

// TestStagesWhatItReads: late pages hear of every slot of the window once, before it is read.
func TestStagesWhatItReads(t *testing.T) {
	stage := func(_ *ReceiverOptions, so *SenderOptions) {
		if pages := pagesOf(so.Models[0]); pages.late {
			pages.staged = map[[2]int]int{}
		}
	}
	inBubble(t, stage, func(t *testing.T, w *wiring) {
		out := w.open("a", 2, 30)
		for _, end := range []int{7, 7, 23} {
			if err := out.Send(0, 1, end, firstPages(40)); err != nil {
				t.Fatal(err)
			}
		}
		w.send(out, 30)
		w.expect(append(openedBoth("a"), "receive delivered a", "send done a")...)
		pages := pagesOf(w.sender.options.Models[0])
		if pages.staged != nil && len(pages.staged) != 30*pages.layers {
			t.Errorf("%d slots were staged, want %d", len(pages.staged), 30*pages.layers)
		}
	})
}

func TestStageThatFailsEndsTheTransfer(t *testing.T) {
	fail := func(_ *ReceiverOptions, so *SenderOptions) { pagesOf(so.Models[0]).failStages = true }
	inBubble(t, fail, func(t *testing.T, w *wiring) {
		if pages := pagesOf(w.sender.options.Models[0]); !pages.late {
			return
		}
		out := w.open("a", 0, 4)
		if err := out.Send(0, 0, 4, firstPages(1)); err == nil {
			t.Error("Send of what could not be staged")
		}
		synctest.Wait()
		for _, e := range w.events {
			if e.Kind == Done || e.Kind == Delivered {
				t.Errorf("a transfer whose stage failed is %v", e.Kind)
			}
		}
	})
}

// A prefill that takes many times the lease keeps it: the beats are the connection's own, whatever
// the caller does meanwhile.
func TestLongPrefillKeepsItsLease(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 30)
		time.Sleep(3 * DefaultLease)
		if err := out.Send(0, 0, 10, firstPages(8)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * DefaultLease)
		w.send(out, 30)
		w.expect(append(openedBoth("a"), "receive delivered a", "send done a")...)
	})
}

func TestSendBeforeOpenedIsAnError(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		w.serve = func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn); conn.Close() }
		out := w.open("a", 0, 4)
		if err := out.Send(0, 0, 4, firstPages(1)); err == nil {
			t.Error("Send while not opened")
		}
		out.Cancel()
		time.Sleep(DefaultTimeout)
		synctest.Wait()
		w.expect("send failed a cancelled")
	})
}

// A receiver that neither reads nor answers any more is noticed after the timeout, whether there is
// KV to write or not.
func TestStoppedReceiverIsNoticed(t *testing.T) {
	for _, writing := range []bool{true, false} {
		inBubble(t, nil, func(t *testing.T, w *wiring) {
			w.serve = func(conn net.Conn) { // Accepts, and then neither reads, writes nor closes.
				in := newInbound(counter{w.receiver, &inlink{conn: conn}}, w.receiver.options, 0)
				for len(in.Output()) == 0 {
					n, _ := conn.Read(in.Space())
					in.Filled(n, 0)
				}
				_, _ = conn.Write(in.Output())
			}
			out := w.open("a", 0, 30)
			began := time.Now()
			if writing {
				w.send(out, 30)
			}
			for len(w.told()) < 3 && time.Since(began) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > DefaultTimeout+50*time.Millisecond {
				t.Errorf("noticed after %v", took)
			}
			w.expect(append(openedBoth("a"), "send failed a timeout")...)
		})
	}
}

func TestStoppedSenderIsNoticed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		text, err := w.receiver.Grant("a", fourSlots())
		if err != nil {
			t.Fatal(err)
		}
		m, bad := parseMetadata(text, Window{End: 4}, 1)
		if bad != nil {
			t.Fatal(bad)
		}
		near, far := net.Pipe()
		go w.receiver.Serve(far, nil)
		go func() { _, _ = io.Copy(io.Discard, near) }()
		out := NewOutbound("a", m, []Model{w.from}, DefaultTimeout)
		out.Start(0)
		_, _ = near.Write(out.Output())
		synctest.Wait()
		time.Sleep(DefaultTimeout + time.Millisecond)
		synctest.Wait()
		w.expect("receive opened a", "receive failed a timeout")
		if w.receiver.Release("a") {
			t.Error("fenced while the connection is open")
		}
		time.Sleep(lingerTime)
		synctest.Wait()
		w.expect("receive opened a", "receive failed a timeout", "receive fenced a")
		near.Close()
	})
}

func TestClosedConnectionIsNoticedAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 30)
		_ = out.Send(0, 0, 30, firstPages(8))
		synctest.Wait()
		began := time.Now()
		w.pipes[0].Close()
		synctest.Wait()
		w.expect(append(openedBoth("a"),
			"receive failed a connection lost", "send failed a connection lost")...)
		if time.Since(began) != 0 || !w.receiver.Release("a") {
			t.Error("not at once")
		}
	})
}

func TestReleaseFencesTheWriter(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 30)
		_ = out.Send(0, 0, 10, firstPages(8))
		synctest.Wait()
		if w.receiver.Release("a") {
			t.Fatal("fenced with a live writer")
		}
		synctest.Wait()
		w.expect(append(openedBoth("a"), "send failed a cancelled", "receive fenced a")...)
		if c := w.receiver.Leases(); c != (LeaseCounts{}) {
			t.Errorf("%+v", c)
		}
		if err := out.Send(0, 1, 10, firstPages(8)); err == nil {
			t.Error("Send after the failure")
		}
	})
}

func TestCancelTellsTheReceiver(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		out := w.open("a", 0, 30)
		_ = out.Send(0, 0, 10, firstPages(8))
		out.Cancel()
		synctest.Wait()
		w.expect(append(openedBoth("a"),
			"send failed a cancelled", "receive failed a cancelled")...)
		if !w.receiver.Release("a") {
			t.Error("not fenced")
		}
	})
}

func TestLeaseExpiresByItself(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		if _, err := w.receiver.Grant("a", fourSlots()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultLease - time.Second)
		if !w.receiver.Renew("a") || w.receiver.Renew("b") {
			t.Error("renewing")
		}
		time.Sleep(DefaultLease - time.Second)
		w.expect()
		time.Sleep(DefaultLease / 8)
		w.expect("receive expired a")
	})
}

func TestRefusalsReachTheSender(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		text, _ := w.receiver.Grant("a", fourSlots())
		w.receiver.Release("a")
		m, err := w.sender.Parse(text, Window{End: 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.sender.Open("a", m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.expect("send failed a reservation not found")
		if e := w.events[0].Err; e.Reason.Code() != "reservation_not_found" || !e.Remote {
			t.Errorf("%+v", e)
		}
	})
}

func TestParseRefusesOtherPeers(t *testing.T) {
	elsewhere := func(ro *ReceiverOptions, _ *SenderOptions) { ro.Address = "10.1.2.3:80" }
	inBubble(t, elsewhere, func(t *testing.T, w *wiring) {
		text, _ := w.receiver.Grant("a", fourSlots())
		_, err := w.sender.Parse(text, Window{End: 4})
		var bad *Error
		if !errors.As(err, &bad) || bad.Reason != InvalidMetadata ||
			!strings.Contains(bad.Detail, "10.1.2.3") {
			t.Fatal(err)
		}
		if err := w.sender.SetPeers([]string{"10.0.0.0/8"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sender.Parse(text, Window{End: 4}); err != nil {
			t.Error(err)
		}
		if err := w.sender.SetPeers([]string{"10.0.0.0/80"}); err == nil {
			t.Error("a wrong list of peers was taken")
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		w.open("a", 0, 4)
		b := w.open("b", 8, 4)
		_ = b.Send(0, 0, 4, firstPages(4))
		w.sender.Close()
		synctest.Wait()
		w.expect(slices.Concat(openedBoth("a"), openedBoth("b"), []string{
			"send failed a cancelled", "receive failed a cancelled",
			"send failed b cancelled", "receive failed b cancelled",
		})...)
		if _, err := w.sender.Open("c", b.meta); err == nil {
			t.Error("opened after Close")
		}
	})
}

func TestDialFailureIsTold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *wiring) {
		w.sender.connect = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.open("slow", 0, 4)
		cancelled := w.open("cancelled", 8, 4)
		cancelled.Cancel()
		synctest.Wait()
		w.expect("send failed cancelled cancelled")
		time.Sleep(DefaultTimeout)
		synctest.Wait()
		w.expect("send failed cancelled cancelled", "send failed slow timeout")
		w.sender.connect = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		}
		w.open("refused", 16, 4)
		w.expect("send failed cancelled cancelled", "send failed slow timeout",
			"send failed refused connection lost")
	})
}
