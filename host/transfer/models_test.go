package transfer

import (
	"testing"
)

// twoModels is a pair whose ends hold a main model and a draft of other sizes.
func twoModels(t *testing.T) (p *pair, draft ends, draftSlots []int) {
	p = newPair(t, 11, smallShape, Window{Begin: 1, End: 12})
	p.ledger.Release("lease")
	s := shape{layers: 1, pages: 30, pageSize: 3, slotBytes: 6}
	draft = ends{s.model(), s.model()}
	pagesOf(draft.from).fill(12)
	models := []Model{p.to, draft.to}
	var err error
	p.ledger, err = NewLedger(ReceiverOptions{
		Models: models, Address: "127.0.0.1:7601", Random: chance(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, draftSlots = slotsFor(p.rand, s, 1, 12)
	text, err := p.ledger.Grant("lease", Reservation{
		Window: p.window, Segments: [][]Segment{Compress(p.slots), Compress(draftSlots)},
	}, p.now)
	if err != nil {
		t.Fatal(err)
	}
	m, bad := parseMetadata(text, p.window, 2)
	if bad != nil {
		t.Fatal(bad)
	}
	p.connect(m)
	senders := []Model{p.from, draft.from}
	p.out = NewOutbound("out", m, senders, DefaultTimeout)
	p.out.Start(p.now)
	p.pack = newPacker(m, senders, 1, p.pack.room)
	return p, draft, draftSlots
}

func TestTwoModels(t *testing.T) {
	p, draft, draftSlots := twoModels(t)
	p.send(12)
	ship := func(q *parcel) { p.queue = append(p.queue, shipment{parcel: q}) }
	if bad := p.pack.pack(owed{1, 0, 12, firstPages(5)}, ship); bad != nil {
		t.Fatal(bad)
	}
	p.seal(12)
	p.settle()
	p.expect(delivered...)
	p.sameKV(t, 1, p.pages, p.slots)
	draft.sameKV(t, 1, firstPages(5), draftSlots)
}

// The KV of one model that never came fails the whole hand-off.
func TestOneModelMissing(t *testing.T) {
	p, _, _ := twoModels(t)
	p.send(12)
	p.seal(12)
	p.settle()
	p.expect(append(opened, "receive failed slot out of place",
		"send failed slot out of place")...)
	p.ledger.Release("lease")
	p.noLeak()
}

// 21: a list of slots for one model where the sender has two.
func TestScenario21(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 4})
	text, err := p.ledger.key.sign(letter{
		Version: 1, Address: "127.0.0.1:1", Lease: "l", Epoch: 1,
		Token: "00112233445566778899aabbccddeeff", Models: [][]int{{1, 0, 4}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, bad := parseMetadata(text, p.window, 2); bad == nil || bad.Reason != InvalidMetadata {
		t.Fatal(bad)
	}
}
