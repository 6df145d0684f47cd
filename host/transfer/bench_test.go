package transfer

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// benchShape is a model of 97M parameters' KV: 12 layers of 4 heads of 64 in F32, pages of 16.
var benchShape = shape{layers: 12, pages: 300, pageSize: 16, slotBytes: 2 * 4 * 64 * 4}

// BenchmarkTransfer moves the KV of 4096 tokens by each transport, and the same bytes by a bare
// copy between two TCP sockets, in turns. Of-bare is the median of the ratios of their speeds, each
// of two neighbours; the CPU seconds are those of both ends.
func BenchmarkTransfer(b *testing.B) {
	for _, by := range transports() {
		b.Run(string(by), func(b *testing.B) {
			r := newRig(b, benchShape, by)
			total := 4096 * benchShape.layers * benchShape.slotBytes
			src, dst := make([]byte, total), make([]byte, total)
			var ratios, speeds, bares []float64
			var ours, theirs time.Duration
			for i := range b.N {
				began := cpuTime()
				n, took := r.move(b, fmt.Sprint("bench-", i), 4096)
				between := cpuTime()
				bare := bareCopy(b, dst[:n], src[:n])
				ours, theirs = ours+between-began, theirs+cpuTime()-between
				ratios = append(ratios, bare.Seconds()/took.Seconds())
				speeds = append(speeds, float64(n)/took.Seconds()/1e9)
				bares = append(bares, float64(n)/bare.Seconds()/1e9)
			}
			b.SetBytes(int64(total))
			moved := float64(total) * float64(b.N) / 1e9
			b.ReportMetric(median(speeds), "GB/s")
			b.ReportMetric(median(bares), "bare-GB/s")
			b.ReportMetric(median(ratios), "of-bare")
			b.ReportMetric(ours.Seconds()/moved, "cpu-s/GB")
			b.ReportMetric(theirs.Seconds()/moved, "bare-cpu-s/GB")
		})
	}
}

// A transfer over TCP reaches at least 0.85 of a bare copy of the same bytes, in turns with it. It
// wants two cores for itself.
func TestReachesABareCopy(t *testing.T) {
	if os.Getenv("ENGINE_LONG") == "" {
		t.Skip("ENGINE_LONG=1 measures; it wants two cores for itself")
	}
	r := newRigWith(t, benchShape, func(ro *ReceiverOptions, so *SenderOptions) {
		pagesOf(ro.Models[0]).writes = nil
		pagesOf(so.Models[0]).late = true
	})
	total := 4096 * benchShape.layers * benchShape.slotBytes
	src, dst := make([]byte, total), make([]byte, total)
	var ratios []float64
	for i := range 21 {
		_, took := r.move(t, fmt.Sprint(i), 4096)
		ratios = append(ratios, bareCopy(t, dst, src).Seconds()/took.Seconds())
	}
	if got := median(ratios); got < 0.85 {
		t.Errorf("%.2f of a bare copy: %.2f", got, ratios)
	} else {
		t.Logf("%.2f of a bare copy", got)
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// rig is a receiver behind a Mux on loopback and a sender, each with pages of its own.
type rig struct {
	ends
	receiver *Receiver
	sender   *Sender
	heard    chan Event
	by       Transport // of the last transfer
}

func newRig(tb testing.TB, s shape, by ...Transport) *rig {
	return newRigWith(tb, s, func(ro *ReceiverOptions, so *SenderOptions) {
		so.Transports = by
		if ro.Nearby != nil && slices.Equal(by, []Transport{TCP}) {
			ro.Nearby.Close()
			ro.Nearby = nil
		}
	})
}

// newRigWith makes a rig whose ends have a nearer way, and what a test changes.
func newRigWith(tb testing.TB, s shape, change options) *rig {
	r := &rig{ends: ends{s.model(), s.model()}, heard: make(chan Event, 256)}
	pagesOf(r.from).fill(1)
	if b, ok := tb.(*testing.B); ok && b != nil {
		pagesOf(r.to).writes = nil
		pagesOf(r.from).late = true
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tell := func(e Event) { r.heard <- e }
	ro := ReceiverOptions{
		Models: []Model{r.to}, Address: l.Addr().String(), Random: rand.Reader, Events: tell,
	}
	so := SenderOptions{Models: []Model{r.from}, Events: tell, Folder: nearbyFolder(tb)}
	if nearby.HasUnix {
		if ro.Nearby, err = nearby.Listen(so.Folder); err != nil {
			tb.Fatal(err)
		}
	}
	change(&ro, &so)
	if r.receiver, err = NewReceiver(ro); err != nil {
		tb.Fatal(err)
	}
	if r.sender, err = NewSender(so); err != nil {
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

// nearbyFolder is short: the path of a socket has little room.
func nearbyFolder(tb testing.TB) string {
	folder, err := os.MkdirTemp("", "kv")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// transports are those of this system.
func transports() []Transport {
	list := []Transport{TCP}
	if nearby.HasUnix {
		list = append(list, Unix)
	}
	if nearby.HasShared {
		list = append(list, Shared)
	}
	return list
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
	r.by = e.Transport
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
