package transfer

import (
	"strings"
	"testing"
)

// changed is a table with a line replaced: the one of the state and input of with, or a new one.
func changed(list []move, with move) *moves {
	m := index(list)
	m[with.from][with.on].to, m[with.from][with.on].does = with.to, with.does
	return m
}

// planted is a fault in a table, and how the explorer calls what comes of it.
type planted struct {
	plant func(*search)
	want  string
}

func inSender(m move) func(*search) {
	return func(s *search) { s.out = changed(senderMoves, m) }
}

func inReceiver(m move) func(*search) {
	return func(s *search) { s.in = changed(receiverMoves, m) }
}

func inLease(m move) func(*search) {
	return func(s *search) { s.lease = changed(leaseMoves, m) }
}

// inCalm looks where nothing else fails.
func inCalm(plant func(*search)) func(*search) {
	return func(s *search) {
		s.calm = true
		plant(s)
	}
}

// inLine looks where two writers want the one seat.
func inLine(plant func(*search)) func(*search) {
	return func(s *search) {
		s.sets, s.chunks, s.sound = 2, 1, true
		plant(s)
	}
}

var plantedFaults = map[string]planted{
	"no quarantine": {inLease(move{from: writing, on: onRelease, to: gone, does: doFree}),
		"freed while a writer could reach them"},
	"a lease with a writer expires": {inLease(move{from: writing, on: onExpire, to: gone,
		does: doFree | doExpire}), "freed while a writer could reach them"},
	"a chunk's seal delivers": {inReceiver(move{from: writing, on: onSeal, to: sealed,
		does: doDeliver | doAck}), "not written"},
	"a delivered lease is written again": {inLease(move{from: sealed, on: onOpen, to: writing}),
		"freed while a writer could reach them"},
	"a lost writer is not fenced": {inReceiver(move{from: writing, on: onClosed, to: closed,
		does: doFail}), "held for ever"},
	"a cancelled writer in line is not fenced": {inLine(inReceiver(move{from: queued,
		on: onCancel, to: closed, does: doCancelled | doFail | doHangUp})), "held for ever"},
	"fenced before it answered": {inReceiver(move{from: writing, on: onRelease, to: cancelling,
		does: doCancel | doFence}), "whose connection is open"},
	"the fence frees nothing": {inLease(move{from: quarantined, on: onFenced, to: gone,
		does: doFenced}), "nobody was given its pages"},
	"a chunk's ack ends it": {inSender(move{from: writing, on: onAck, to: done,
		does: doDone | doHangUp}), "before its lease was delivered"},
	"the last ack is not known": {inCalm(inSender(move{from: sealing, on: onLastAck, to: none})),
		"not delivered, or no sender heard"},
	"a chunk's ack is not known": {inCalm(inSender(move{from: writing, on: onAck, to: none})),
		"not delivered"},
	"no patience in quarantine": {inReceiver(move{from: cancelling, on: onTimeout, to: none}),
		"held for ever"},
	"no patience with a slow opener": {inReceiver(move{from: expecting, on: onTimeout,
		to: none}), "held for ever"},
	"a delivered lease does not expire": {inLease(move{from: sealed, on: onExpire, to: none}),
		"held for ever"},
	"a piece that was taken is not known": {inCalm(inSender(move{from: writing, on: onTaken,
		to: none})), "not delivered"},
	"nothing resumes": {inCalm(inReceiver(move{from: writing, on: onSeal, to: closed,
		does: doKeep | doFail | doFence})), "not delivered"},
}

// Each fault planted in a table is found, and called what it is.
func TestExplorerFindsPlantedFaults(t *testing.T) {
	if raced {
		t.Skip("one goroutine, many states")
	}
	for name, c := range plantedFaults {
		t.Run(name, func(t *testing.T) {
			s := fullSearch()
			s.epochs, s.chunks = 1, 2
			if c.want == "held for ever" {
				s.chunks = 1
			}
			c.plant(s)
			steps := s.explore()
			if len(steps) == 0 || !strings.Contains(steps[len(steps)-1], c.want) {
				t.Fatalf("after %d states: %q, want %q", len(s.order), steps, c.want)
			}
			t.Logf("%d states: %s", len(s.order), strings.Join(steps, " > "))
		})
	}
}
