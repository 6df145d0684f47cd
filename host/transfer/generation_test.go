package transfer

import (
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

// Pages are of one lease at a time, from its grant until it is delivered, released or expired, and
// in quarantine too.
func TestPagesHaveOneHolder(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	again := Reservation{Window: p.window, Segments: [][]Segment{Compress(p.slots)}}
	mayGrant := func(when string, want bool) {
		t.Helper()
		_, err := p.ledger.Grant("other", again, p.now)
		if (err == nil) != want {
			t.Fatalf("%s: %v", when, err)
		}
		p.ledger.Release("other")
	}
	mayGrant("granted", false)
	p.move(1 << 20)
	mayGrant("writing", false)
	if mustRelease(p, "lease") {
		t.Fatal("fenced with a live writer")
	}
	mayGrant("in quarantine", false)
	p.in.Withdraw(p.now)
	p.settle()
	mayGrant("fenced", true)

	p.connect(p.grant("lease"))
	p.send(10)
	p.seal(10)
	p.settle()
	mayGrant("delivered", true)
	p.ledger.Release("lease")
	p.noLeak()
	if len(p.ledger.holders) != 0 {
		t.Fatalf("pages of no lease have holders: %v", p.ledger.holders)
	}
}

// From the release on no frame is let in, though its machine has not heard of it yet.
func TestNoFrameIsWrittenAfterTheRelease(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	p.move(1 << 20)
	p.send(4)
	p.move(1 << 20)
	writes := pagesOf(p.to).writeCalls
	if mustRelease(p, "lease") || writes == 0 {
		t.Fatalf("fenced with a live writer, or %d writes", writes)
	}
	p.send(10)
	p.move(1 << 20)
	if pagesOf(p.to).writeCalls != writes {
		t.Fatal("written after the release")
	}
	p.settle()
	p.expect("receive opened", "send opened", "receive fenced", "send failed reservation not found")
}

// A page that went to another lease behind the ledger's back is of another generation.
func TestWriterOfAnOlderGenerationIsRefused(t *testing.T) {
	p := newPair(t, 3, smallShape, Window{End: 10})
	p.move(1 << 20)
	page := kvcache.PageID(p.slots[5] / smallShape.pageSize)
	p.ledger.holders[pageName{0, page}]++
	p.send(10)
	p.seal(10)
	p.settle()
	p.expect("receive opened", "send opened", "receive failed reservation not found",
		"send failed reservation not found")
	for slot := range smallShape.pageSize {
		if n := pagesOf(p.to).writes[[2]int{0, int(page)*smallShape.pageSize + slot}]; n != 0 {
			t.Fatalf("slot %d of the page was written", slot)
		}
	}
}
