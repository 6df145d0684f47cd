package transfer

import (
	"slices"
	"testing"
	"time"
)

// FuzzInbound feeds a receiver anything, alone or behind a right opening frame, or as payloads of
// frames that are right otherwise. It must refuse or wait, write inside the lease only, and hold
// no more memory than what came justifies.
func FuzzInbound(f *testing.F) {
	good := newPair(f, 1, smallShape, Window{Begin: 2, End: 10})
	good.send(10)
	good.seal(10)
	good.move(1 << 20)
	good.ship()
	f.Add(good.there, true, false)
	f.Add(good.there, false, false)
	with := good.out.pass
	laid := make([]byte, dataHead)
	place{position: 2, count: 8}.putPlaced(laid, 512)
	f.Add(appendFrame(nil, kindPlaced, with, laid), true, false)
	for k := kindOpen; k <= lastKind; k++ {
		least, _ := k.lengths()
		f.Add(appendFrame(nil, k, with, make([]byte, least)), true, false)
		f.Add(append([]byte{byte(k), byte(least)}, make([]byte, least)...), true, true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, behindOpening, framed bool) {
		p := newPair(t, 1, smallShape, Window{Begin: 2, End: 10})
		p.in.lane = Lane{Number: 1, Bytes: 1 << 10}
		pagesOf(p.to).device = &laneDevice{card: &card{},
			lanes: map[int][]byte{1: make([]byte, p.in.lane.Bytes)}}
		if behindOpening {
			p.move(1 << 20)
		}
		if framed {
			stream = wrap(stream, p.out.pass)
		}
		came := firstBuffer
		for len(stream) > 0 && !p.in.Over() {
			n := copy(p.in.Space(), stream)
			p.in.Filled(n, p.now)
			stream, came = stream[n:], came+n
			if len(p.in.dec.buf) > 2*came {
				t.Fatalf("%d bytes held after %d", len(p.in.dec.buf), came)
			}
			p.now += time.Millisecond
			p.in.Tick(p.now)
		}
		insideOnly(t, p)
		p.hangUp()
		p.ledger.Release("lease")
		p.noLeak()
	})
}

// wrap reads a kind, a length and a payload again and again, and makes a right frame of each.
func wrap(text []byte, with pass) (stream []byte) {
	for len(text) >= 2 {
		n := min(int(text[1]), len(text)-2)
		payload := text[2 : 2+n]
		if kind(text[0]) == kindData && n < dataHead { // A checksum needs the head.
			payload = append(slices.Clone(payload), make([]byte, dataHead-n)...)
		}
		stream = appendFrame(stream, kind(text[0]), with, payload)
		text = text[2+n:]
	}
	return stream
}

// FuzzOutbound feeds a sender anything as the receiver's answer. It must fail or wait, and send no
// KV before it was accepted.
func FuzzOutbound(f *testing.F) {
	with := newPair(f, 1, smallShape, Window{End: 4}).out.pass
	for k := kindOpen; k <= lastKind; k++ {
		least, _ := k.lengths()
		f.Add(appendFrame(nil, k, with, make([]byte, least)))
	}
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		p := newPair(t, 1, smallShape, Window{End: 4})
		p.send(4)
		p.seal(4)
		p.ship()
		accepted := false
		for len(answer) > 0 && !p.out.Over() {
			n := copy(p.out.Space(), answer)
			p.out.Filled(n, p.now)
			answer = answer[n:]
			accepted = accepted || p.out.Writing()
			before := len(p.queue)
			p.ship()
			if !accepted && len(p.queue) != before {
				t.Fatal("KV was sent before the transfer was accepted")
			}
		}
		p.note()
		for _, e := range p.events {
			if e.Kind == Done && !accepted {
				t.Fatal("done without having been accepted")
			}
		}
	})
}

// FuzzOpening reads payloads of opening frames; what it accepts, it writes back the same.
func FuzzOpening(f *testing.F) {
	p := newPair(f, 1, smallShape, Window{End: 4})
	f.Add(p.out.Output()[headerSize:])
	f.Fuzz(func(t *testing.T, payload []byte) {
		o, bad := readOpening(frame{kind: kindOpen, payload: payload})
		if bad != nil {
			return
		}
		if again := o.append(nil); string(again) != string(payload) {
			t.Fatalf("read %x, wrote %x", payload, again)
		}
	})
}

// FuzzWay reads payloads of way frames; what it accepts, it writes back the same, but for bits that
// it does not know.
func FuzzWay(f *testing.F) {
	f.Add(way{name: "kv-0123456789abcdef.sock", by: []Transport{Shared}}.append(nil))
	f.Add([]byte{0xff, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		w, bad := readWay(payload)
		if bad != nil {
			return
		}
		again := w.append(nil)
		if string(again[1:]) != string(payload[1:]) || again[0] != payload[0]&15 {
			t.Fatalf("read %x, wrote %x", payload, again)
		}
	})
}
