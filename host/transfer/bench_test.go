package transfer

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
)

// benchShape is a model of 97M parameters' KV: 12 layers of 4 heads of 64 in F32, pages of 16.
var benchShape = shape{layers: 12, pages: 300, pageSize: 16, slotBytes: 2 * 4 * 64 * 4}

// BenchmarkTransfer moves the KV of 4096 tokens over TCP loopback, and the same bytes by a bare
// copy between two sockets, and reports the ratio of the two speeds.
func BenchmarkTransfer(b *testing.B) {
	r := newRig(b, benchShape)
	total := 4096 * benchShape.layers * benchShape.slotBytes
	src, dst := make([]byte, total), make([]byte, total)
	var moved, bare time.Duration
	var bytes int64
	for i := range b.N {
		n, took := r.move(b, fmt.Sprint("bench-", i), 4096)
		moved, bytes = moved+took, bytes+n
		bare += bareCopy(b, dst[:n], src[:n])
	}
	b.SetBytes(bytes / int64(b.N))
	b.ReportMetric(float64(bytes)/moved.Seconds()/1e9, "GB/s")
	b.ReportMetric(float64(bytes)/bare.Seconds()/1e9, "bare-GB/s")
	b.ReportMetric(bare.Seconds()/moved.Seconds(), "of-bare")
}

// rig is a receiver behind a Mux on loopback and a sender, each with pages of its own.
type rig struct {
	ends
	receiver *Receiver
	sender   *Sender
	heard    chan Event
}

func newRig(tb testing.TB, s shape) *rig {
	r := &rig{ends: ends{s.model(), s.model()}, heard: make(chan Event, 64)}
	pagesOf(r.from).fill(1)
	if b, ok := tb.(*testing.B); ok && b != nil {
		pagesOf(r.to).writes = nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tell := func(e Event) { r.heard <- e }
	r.receiver, err = NewReceiver(ReceiverOptions{
		Models: []Model{r.to}, Address: l.Addr().String(), Random: rand.Reader, Events: tell,
	})
	if err != nil {
		tb.Fatal(err)
	}
	r.sender, err = NewSender(SenderOptions{Models: []Model{r.from}, Events: tell})
	if err != nil {
		tb.Fatal(err)
	}
	mux := NewMux(l, r.receiver)
	tb.Cleanup(func() {
		r.sender.Close()
		mux.Close()
		r.receiver.Close()
	})
	return r
}

// move carries the KV of so many positions and says how many bytes it was and how long it took.
func (r *rig) move(tb testing.TB, id string, tokens int) (int64, time.Duration) {
	s := r.from.Compat
	pages := make([]kvcache.PageID, (tokens+s.PageSize-1)/s.PageSize)
	for i := range pages {
		pages[i] = kvcache.PageID(i)
	}
	w := Window{End: tokens}
	text, err := r.receiver.Grant(id, Reservation{
		Window: w, Segments: [][]Segment{{{Slot: 0, Count: tokens}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := r.sender.Parse(text, w)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := r.sender.Open(id, m)
	if err != nil {
		tb.Fatal(err)
	}
	r.wait(tb, Opened, Sending)
	start := time.Now()
	for layer := range s.Layers {
		for r.sender.Backlog() > freeBuffers/2*frameBytes {
			time.Sleep(50 * time.Microsecond) // The next layer computes.
		}
		if err := out.Send(0, layer, tokens, pages); err != nil {
			tb.Fatal(err)
		}
	}
	out.Seal()
	e := r.wait(tb, Done, Sending)
	took := time.Since(start)
	r.receiver.Release(id)
	return e.Bytes, took
}

func (r *rig) wait(tb testing.TB, kind EventKind, d Direction) Event {
	tb.Helper()
	for e := range r.heard {
		if e.Kind == Failed {
			tb.Fatalf("%v: %v", e.Direction, e.Err)
		}
		if e.Kind == kind && e.Direction == d {
			return e
		}
	}
	return Event{}
}

// bareCopy carries the bytes of src to dst over a TCP connection, written and read in pieces of a
// frame; the reader answers one byte when it has all.
func bareCopy(tb testing.TB, dst, src []byte) time.Duration {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for rest := dst; len(rest) > 0; {
			k, err := conn.Read(rest[:min(len(rest), frameBytes)])
			if err != nil {
				return
			}
			rest = rest[k:]
		}
		_, _ = conn.Write(dst[:1])
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	for rest := src; len(rest) > 0; rest = rest[min(len(rest), frameBytes):] {
		if _, err := conn.Write(rest[:min(len(rest), frameBytes)]); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		tb.Fatal(err)
	}
	return time.Since(start)
}
