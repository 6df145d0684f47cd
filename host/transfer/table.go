package transfer

import (
	"fmt"
	"strings"
)

// state is where one end of a transfer, or a lease, stands.
type state uint8

// The sender:
//
//	asking ─accept─► writing ─seal it─► sealing ─last ack─► done
//	   └────────────────┴─ give up ───────┴──► cancelling ─cancelled─► failed
//
// The receiver, one a connection:
//
//	expecting ─open─► [queued ─room─►] writing ─last seal─► sealed ─► closed
//	    └──── bad ──────┴─────────────────┴──► refused ─► closed
//	                    └──── release ─────────► cancelling ─cancelled─► closed
//
// The lease:
//
//	granted ◄─open / fenced─► writing ─last seal─► sealed ─release, expire─► gone
//	                             └─release─► quarantined ─fenced─► gone
const (
	none state = iota // no such move

	asking  // the opening frame is out
	writing // keys and values flow
	sealing // the last seal is out
	cancelling
	done
	failed

	expecting // no opening frame yet
	queued    // the lease is right, other writers have all the room
	sealed    // everything acknowledged
	refused   // a refusal is out; what still comes is thrown away
	closed    // the connection is to be closed, or is

	granted     // a lease without a writer
	quarantined // released, with a writer that may still be in the middle of a page
	gone        // the pages are the engine's again

	states
)

func (s state) String() string {
	return [...]string{"none", "asking", "writing", "sealing", "cancelling", "done", "failed",
		"expecting", "queued", "sealed", "refused", "closed", "granted", "quarantined", "gone"}[s]
}

// input is what moves an end: a frame that was judged, or something that happened here.
type input uint8

// The inputs. Those in the first group are frames.
const (
	onOpen      input = iota // an opening frame that proves the right to write
	onAccept                 // accept
	onData                   // data, in place
	onSeal                   // seal of a chunk, nothing missing, digests equal
	onLastSeal               // the same for the window's end
	onAck                    // ack that repeats a seal of ours
	onLastAck                // the same for the window's end
	onRefuse                 // refuse
	onCancel                 // cancel
	onCancelled              // cancelled
	onBeat                   // beat
	onPlaced                 // placed, in place, and there in the lane
	onTaken                  // taken

	onNearby  // the question for a nearer way
	onBad     // a frame that must be refused, or bytes that are none
	onRoom    // another writer left room
	onFull    // an opening frame that proves the right, but there is no room
	onFinish  // the caller has sent everything
	onGiveUp  // the caller cancels, or cannot read its pages
	onRelease // the lease was released or its pages failed
	onTimeout // nothing heard for the timeout, or the state's own time is over
	onClosed  // the connection ended
	onFail    // the lease's writer failed
	onFenced  // the lease's writer cannot reach the pages any more
	onExpire  // nobody wrote or renewed the lease for its whole time

	inputs
)

func (i input) String() string {
	return [...]string{"open", "accept", "data", "seal", "last seal", "ack", "last ack", "refuse",
		"cancel", "cancelled", "beat", "placed", "taken", "nearby", "bad", "room", "full", "finish",
		"give up", "release", "timeout", "connection ended", "failed", "fenced", "expire"}[i]
}

// action is what a move does besides changing the state. A move may have several; they are done in
// the order of their bits. Those of the first group are tried before the move, and one that fails
// makes the input `bad`, or `full` where it is the seat that is missing.
type action uint32

const (
	doAttach  action = 1 << iota // become the writer of the lease that the opening frame names
	doSeat                       // take one of the seats
	doWrite                      // put keys and values into the pages that are due
	doKeep                       // check all below the seal, and let another writer resume there
	doDeliver                    // check that nothing is missing, and tell the engine

	doAccept    // say accept, with the position to start from
	doAck       // say ack
	doRefuse    // say refuse, with the reason
	doCancel    // say cancel, with the reason
	doCancelled // say cancelled

	doOpened // tell the engine: opened
	doDone   // tell the engine: done
	doFail   // tell the engine, or the lease, why it failed
	doFence  // tell the lease that its writer cannot reach the pages any more
	doFree   // the pages are the engine's; it knows, for it released them, or is told
	doHangUp // close the connection
	doExpire // tell the engine: expired
	doFenced // tell the engine: fenced
	doWay    // say way: where else this receiver is reached
	doTaken  // say taken
)

// actionWords are the actions as PROTOCOL.md says them, in the order of their bits.
var actionWords = [...]string{"attaches the writer", "seats it", "writes the slots",
	"keeps where to resume", "delivers", "says accept", "says ack", "says refuse", "says cancel",
	"says cancelled", "tells opened", "tells done", "tells failed", "fences the writer",
	"frees the pages", "hangs up", "tells expired", "tells fenced", "says way", "says taken"}

func (a action) has(one action) bool { return a&one != 0 }

func (a action) String() string {
	var words []string
	for i, word := range actionWords {
		if a.has(1 << i) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

// move is one line of a transition table. The note is for the document.
type move struct {
	from state
	on   input
	to   state
	does action
	note string
}

// moves is a table as the machines read it.
type moves [states][inputs]struct {
	to   state // none: there is no such move
	does action
}

func index(list []move) *moves {
	var m moves
	for _, line := range list {
		at := &m[line.from][line.on]
		if at.to != none {
			panic(fmt.Sprintf("transfer: two moves from %v on %v", line.from, line.on))
		}
		at.to, at.does = line.to, line.does
	}
	return &m
}
