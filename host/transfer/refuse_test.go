package transfer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every byte of a whole transfer is flipped once, in both directions. Either end notices, or the
// flip was harmless: what is delivered is what was sent, and nothing outside the lease is written.
func TestEveryFlippedByteIsDetectedOrHarmless(t *testing.T) {
	record := func(seed uint64) (there, back []byte) {
		p := flipPair(t, seed)
		for !p.out.Over() {
			p.ship()
			there = append(there, p.there...)
			p.there = p.feed(p.there, 1<<20, p.in.Space, p.in.Filled)
			back = append(back, p.in.Output()...)
			p.move(1 << 20)
		}
		return there, back
	}
	there, back := record(1)
	for at := range len(there) + len(back) {
		p := flipPair(t, 1)
		flip := byte(1 << (at % 8))
		gone, came := 0, 0
		for step := 0; step < 400 && !p.out.Over(); step++ {
			p.ship()
			gone = flipAt(p.there, gone, at, flip)
			p.there = p.feed(p.there, 1<<20, p.in.Space, p.in.Filled)
			p.back = append(p.back, p.in.Output()...)
			p.in.Written(len(p.in.Output()))
			came = flipAt(p.back, came, at-len(there), flip)
			p.back = p.feed(p.back, 1<<20, p.out.Space, p.out.Filled)
			p.note()
			if len(p.there)+len(p.back)+len(p.out.Output())+len(p.in.Output()) == 0 {
				p.now = min(p.in.Deadline(), p.out.Deadline())
				p.tick()
			}
		}
		if !p.out.Over() {
			t.Fatalf("byte %d flipped: hangs", at)
		}
		p.hangUp()
		told := p.told()
		if slices.Contains(told, "receive delivered") {
			p.sameKV(t, p.window.Begin, p.pages, p.slots)
		}
		if slices.Contains(told, "send done") && !slices.Contains(told, "receive delivered") {
			t.Fatalf("byte %d flipped: done but not delivered", at)
		}
		if at < len(there) && slices.Contains(told, "send done") {
			t.Fatalf("byte %d of the sender flipped and nobody noticed", at)
		}
		insideOnly(t, p)
		p.ledger.Release("lease")
		p.noLeak()
	}
}

func flipPair(t *testing.T, seed uint64) *pair {
	p := newPair(t, seed, smallShape, Window{Begin: 1, End: 6})
	p.send(6)
	p.seal(6)
	return p
}

// flipAt flips the byte at position at of a stream of which before bytes have passed, if it is
// among these, and returns how many have passed now.
func flipAt(stream []byte, before, at int, flip byte) int {
	if i := at - before; i >= 0 && i < len(stream) {
		stream[i] ^= flip
	}
	return before + len(stream)
}

// insideOnly asserts that no slot outside the lease was written, and none twice.
func insideOnly(t testing.TB, p *pair) {
	t.Helper()
	for where, n := range pagesOf(p.to).writes {
		if n > 1 || !slices.Contains(p.slots, where[1]) {
			t.Fatalf("layer and slot %v written %d times; reserved are %v", where, n, p.slots)
		}
	}
}

// refusedOpening opens with what change makes of a right opening, and returns the refusal. Nothing
// may be written, and the lease must be as it was.
func refusedOpening(t *testing.T, change func(p *pair, o *opening)) *Error {
	t.Helper()
	p := newPair(t, 9, smallShape, Window{Begin: 2, End: 10})
	m := retry(p)
	o := opening{
		pass: pass{m.Epoch, m.token}, lease: m.Lease, window: m.Window, metadata: m.raw,
		models: [][]property{p.from.Compat.properties()},
	}
	change(p, &o)
	before := p.ledger.Counts()
	p.out.pass, p.out.opening, p.out.begun = o.pass, o.append(nil), false
	p.out.out = nil
	p.out.Start(p.now)
	p.send(10)
	p.seal(10)
	p.settle()
	if len(pagesOf(p.to).writes) > 0 {
		t.Fatal("something was written")
	}
	if after := p.ledger.Counts(); after != before {
		t.Fatalf("leases: %+v, then %+v", before, after)
	}
	if told := p.told(); len(told) != 1 || p.out.Err() == nil || !p.out.Err().Remote {
		t.Fatalf("%q, %v", told, p.out.Err())
	}
	return p.out.Err()
}

func TestRefusedOpenings(t *testing.T) {
	cases := []struct {
		name   string
		reason Reason
		says   string
		change func(p *pair, o *opening)
	}{
		{"altered metadata", InvalidMetadata, "not made by", func(_ *pair, o *opening) {
			o.metadata = bytes.Replace(o.metadata, []byte("lease"), []byte("leasf"), 1)
		}},
		{"altered MAC", InvalidMetadata, "not made by", func(_ *pair, o *opening) {
			o.metadata[len(o.metadata)-1] ^= 1
		}},
		{"no metadata", InvalidMetadata, "", func(_ *pair, o *opening) { o.metadata = nil }},
		{"another receiver's metadata", InvalidMetadata, "it started", func(p *pair, o *opening) {
			other := newPair(t, 10, smallShape, p.window)
			o.metadata = retry(other).raw
		}},
		{"wrong token", NotFound, "another token", func(_ *pair, o *opening) { o.token[3] ^= 1 }},
		{"wrong epoch", NotFound, "epoch", func(_ *pair, o *opening) { o.epoch++ }},
		{"metadata of an older lease of the id", NotFound, "epoch", func(p *pair, o *opening) {
			p.ledger.Release("lease")
			p.grant("lease")
		}},
		{"the id of another lease", NotFound, "another token", func(p *pair, o *opening) {
			slots := p.slots
			p.slots = []int{0, 1, 2, 3, 4, 5, 6, 7}
			p.grant("other")
			p.slots, o.lease = slots, "other"
		}},
		{"released", NotFound, "released", func(p *pair, o *opening) { p.ledger.Release("lease") }},
		{"unknown", NotFound, "unknown", func(p *pair, o *opening) { o.lease = "nobody" }},
		{"other window", InvalidMetadata, "here [2, 10), there [1, 10)", func(_ *pair, o *opening) {
			o.window.Begin = 1
		}},
		{"two models", Incompatible, "models: here 1, there 2", func(_ *pair, o *opening) {
			o.models = append(o.models, o.models[0])
		}},
		{"other rope and window", Incompatible,
			"rope: here theta=10000, there theta=500000; window: here 0, there 64",
			func(p *pair, o *opening) {
				c := p.from.Compat
				c.Rope, c.Window = "theta=500000", 64
				o.models[0] = c.properties()
			}},
		{"other numbers", Incompatible, "dtype: here f32, there f16 (set kv_cache.dtype = " +
			"\"f16\" here, or \"f32\" there); numerics: here fma, there fma-int8 (set " +
			"backend.activations = \"int8\" here, or \"f32\" there)",
			func(p *pair, o *opening) {
				c := p.from.Compat
				c.DType, c.Numerics = "f16", "fma-int8"
				o.models[0] = c.properties()
			}},
		{"a value that we do not know", Incompatible, "colour: here none, there blue",
			func(p *pair, o *opening) {
				o.models[0] = append(o.models[0], property{"colour", "blue"})
			}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bad := refusedOpening(t, c.change)
			if bad.Reason != c.reason || !strings.Contains(bad.Detail, c.says) {
				t.Fatalf("got %v (%q), want %v (%q)", bad.Reason, bad.Detail, c.reason, c.says)
			}
		})
	}
}

// The whole first connection is replayed to the receiver: in its middle, after it failed, after
// it was delivered, and after the lease was released and its pages granted to another.
func TestReplays(t *testing.T) {
	first := newPair(t, 4, smallShape, Window{End: 8})
	first.send(8)
	first.seal(8)
	var there []byte
	for !first.out.Over() {
		first.ship()
		there = append(there, first.there...)
		first.move(1 << 20)
	}
	first.hangUp()
	replay := func(p *pair) Reason {
		in := p.ledger.Connect(p.now)
		writes := pagesOf(p.to).writeCalls
		rest := there
		for len(rest) > 0 && in.state != refused {
			n := copy(in.Space(), rest)
			in.Filled(n, p.now)
			rest = rest[n:]
		}
		if pagesOf(p.to).writeCalls != writes {
			t.Fatal("a replay wrote to pages")
		}
		f, ok, bad := (&decoder{buf: in.Output(), have: len(in.Output())}).next(pass{})
		if !ok || bad != nil || f.kind != kindRefuse {
			t.Fatalf("no refusal: %v", bad)
		}
		why, _ := readReason(f.payload)
		return why.Reason
	}
	if r := replay(first); r != NotFound {
		t.Errorf("after delivery: %v", r)
	}
	first.ledger.Release("lease")
	if r := replay(first); r != NotFound {
		t.Errorf("after release: %v", r)
	}
	first.grant("lease")
	if r := replay(first); r != NotFound {
		t.Errorf("after the id and the pages were granted anew: %v", r)
	}
	middle := newPair(t, 4, smallShape, Window{End: 8})
	middle.move(1 << 20)
	if r := replay(middle); r != Busy {
		t.Errorf("beside the live writer: %v", r)
	}
}

// attack opens rightly and then sends frames of its own making.
func attack(t *testing.T, frames func(p *pair) []byte) *pair {
	t.Helper()
	p := newPair(t, 6, smallShape, Window{Begin: 2, End: 10})
	p.move(1 << 20)
	p.there = append(p.there, frames(p)...)
	p.settle()
	insideOnly(t, p)
	return p
}

// attempt is the frames of an attack.
type attempt func(p *pair) []byte

func dataFrame(p *pair, at place, kv int) []byte {
	payload := make([]byte, dataHead+kv)
	at.put(payload, payload[dataHead:])
	return appendFrame(nil, kindData, p.out.pass, payload)
}

// data is data frames for the given places, each with as many slots of KV as it says.
func data(places ...place) attempt {
	return func(p *pair) (all []byte) {
		for _, at := range places {
			all = append(all, dataFrame(p, at, at.count*smallShape.slotBytes)...)
		}
		return all
	}
}

// sized is a data frame that carries other bytes than its count says.
func sized(at place, kv int) attempt {
	return func(p *pair) []byte { return dataFrame(p, at, kv) }
}

func other(k kind, payload int) attempt {
	return func(p *pair) []byte { return appendFrame(nil, k, p.out.pass, make([]byte, payload)) }
}

func sealAt(end int, before ...attempt) attempt {
	return func(p *pair) (all []byte) {
		for _, a := range before {
			all = append(all, a(p)...)
		}
		return appendFrame(all, kindSeal, p.out.pass, seal{end: end}.append(nil))
	}
}

// altered is a beat with a byte of its header changed.
func altered(at int, value byte) attempt {
	return func(p *pair) []byte {
		f := appendFrame(nil, kindBeat, p.out.pass, nil)
		f[at] = value
		return f
	}
}

func strayed(with pass) attempt {
	return func(p *pair) []byte {
		if with.epoch == 0 {
			with.epoch = p.out.pass.epoch
		}
		return appendFrame(nil, kindBeat, with, nil)
	}
}

// The window is [2, 10), there are three layers.
func TestHostileFrames(t *testing.T) {
	slot := smallShape.slotBytes
	cases := map[string]struct {
		reason Reason
		frames attempt
	}{
		"before the window":      {OutOfPlace, data(place{0, 0, 1, 1})},
		"beyond the window":      {OutOfPlace, data(place{0, 0, 2, 7}, place{0, 0, 9, 2})},
		"a position left out":    {OutOfPlace, data(place{0, 0, 3, 1})},
		"a slot twice":           {OutOfPlace, data(place{0, 0, 2, 1}, place{0, 0, 2, 1})},
		"another model":          {OutOfPlace, data(place{1, 0, 2, 1})},
		"another layer":          {OutOfPlace, data(place{0, 3, 2, 1})},
		"too few bytes":          {OutOfPlace, sized(place{0, 0, 2, 2}, slot)},
		"no positions":           {OutOfPlace, sized(place{0, 0, 2, 0}, slot)},
		"a huge count":           {OutOfPlace, sized(place{0, 0, 2, 1<<32 - 1}, slot)},
		"more than the lease":    {Malformed, sized(place{0, 0, 2, 8}, 9*slot)},
		"sealed with nothing":    {OutOfPlace, sealAt(10)},
		"a chunk of one layer":   {OutOfPlace, sealAt(3, data(place{0, 0, 2, 1}))},
		"a seal beyond the end":  {OutOfPlace, sealAt(11)},
		"a seal before begin":    {OutOfPlace, sealAt(2)},
		"opened twice":           {Malformed, other(kindOpen, openFixedSize)},
		"a frame of a receiver":  {Malformed, other(kindAccept, 4)},
		"an answer to no cancel": {Malformed, other(kindCancelled, 0)},
		"an unknown kind":        {Malformed, other(77, 0)},
		"not the magic":          {Malformed, altered(0, 'G')},
		"flags":                  {Malformed, altered(atFlags, 1)},
		"another version":        {Incompatible, altered(atVersion, 2)},
		"a stale epoch":          {NotFound, strayed(pass{epoch: 77})},
		"another token":          {Checksum, strayed(pass{token: Token{1}})},
		"a wrong digest": {Digest, sealAt(10, data(
			place{0, 0, 2, 8}, place{0, 1, 2, 8}, place{0, 2, 2, 8}))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := attack(t, c.frames)
			p.expect(append(slices.Clone(opened), "receive failed "+c.reason.String(),
				"send failed "+c.reason.String())...)
			if !mustRelease(p, "lease") {
				t.Fatal("not fenced after the connection was closed")
			}
			p.noLeak()
		})
	}
}

// A position that a -1 segment stands for is never written.
func TestSkippedPositionsAreRefused(t *testing.T) {
	p := newPair(t, 6, smallShape, Window{End: 6})
	p.ledger.Release("lease")
	p.slots[2], p.slots[3] = skipped, skipped
	p.connect(p.grant("lease"))
	p.move(1 << 20)
	p.there = append(p.there, dataFrame(p, place{0, 0, 0, 4}, 4*smallShape.slotBytes)...)
	p.settle()
	if p.out.Err() == nil || p.out.Err().Reason != OutOfPlace {
		t.Fatal(p.out.Err())
	}
	insideOnly(t, p)
}

// Whatever an opener claims, the buffer grows with what it sent, and never beyond one frame.
func TestAllocationFollowsInput(t *testing.T) {
	in := newPair(t, 1, smallShape, Window{End: 4}).in
	f := make([]byte, headerSize)
	putHeader(f, kindOpen, pass{})
	f[atLength], f[atLength+1], f[atLength+2] = 0xff, 0xff, 0x01 // 128 KiB - 1
	in.Filled(copy(in.Space(), f), 0)
	for sent := headerSize; !in.deaf() && sent < maxOpening; {
		if len(in.dec.buf) > max(firstBuffer, 2*sent) {
			t.Fatalf("%d bytes held after %d came", len(in.dec.buf), sent)
		}
		n := min(100, len(in.Space()))
		in.Filled(n, 0)
		sent += n
	}
	p := newPair(t, 1, smallShape, Window{End: 4})
	p.move(1 << 20)
	if most := 4 * smallShape.slotBytes; p.in.dec.bound != most {
		t.Fatalf("frames of %d bytes are let in, a layer of the lease has %d", p.in.dec.bound, most)
	}
}

func TestSlowOpenerIsDropped(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 4})
	p.ship()
	for i := 0; !p.in.Over(); i++ {
		if i > 10 {
			t.Fatal("still there")
		}
		p.now += DefaultTimeout / 8
		p.there = p.feed(p.there, 1, p.in.Space, p.in.Filled) // A byte now and then is not enough.
		p.in.Tick(p.now)
	}
}

func TestSenderRefusesNonsense(t *testing.T) {
	answers := map[string][]byte{
		"http":          []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
		"early ack":     appendFrame(nil, kindAck, pass{}, make([]byte, sealSize)),
		"another token": appendFrame(nil, kindAccept, pass{1, Token{9}}, make([]byte, 4)),
	}
	for name, answer := range answers {
		p := newPair(t, 1, smallShape, Window{End: 4})
		p.send(4)
		p.ship()
		p.feed(answer, len(answer), p.out.Space, p.out.Filled)
		before := len(p.there)
		p.ship()
		if !p.out.Over() || len(p.there) != before {
			t.Errorf("%s: %v, %d bytes of KV sent", name, p.out.state, len(p.there)-before)
		}
	}
}

func TestReasonsTellStatus(t *testing.T) {
	for r := Malformed; r <= PageFault; r++ {
		if r.String() == "" || r.Code() == "" || r.Label() == "" {
			t.Errorf("reason %d has no words", r)
		}
	}
	e := &Error{Reason: Incompatible, Detail: "rope"}
	if got := fmt.Sprint(e); got != "incompatible instance: rope" {
		t.Error(got)
	}
}
