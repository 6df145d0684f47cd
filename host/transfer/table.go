package transfer

import "fmt"

// state is where one end of a transfer stands. Sender and receiver have their own.
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
//	                    └──── withdraw ────────► cancelling ─cancelled─► closed
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

	states
)

func (s state) String() string {
	return [...]string{"none", "asking", "writing", "sealing", "cancelling", "done", "failed",
		"expecting", "queued", "sealed", "refused", "closed"}[s]
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

	onBad     // a frame that must be refused, or bytes that are none
	onRoom    // another writer left room
	onFull    // an opening frame that proves the right, but there is no room
	onFinish  // the caller has sent everything
	onGiveUp  // the caller cancels, or cannot read its pages
	onRelease // the lease was released or its pages failed
	onTimeout // nothing heard for the timeout, or the state's own time is over
	onClosed  // the connection ended

	inputs
)

func (i input) String() string {
	return [...]string{"open", "accept", "data", "seal", "last seal", "ack", "last ack", "refuse",
		"cancel", "cancelled", "beat", "bad", "room", "full", "finish", "give up", "release",
		"timeout", "connection ended"}[i]
}

// move is one line of a transition table. Does says what the end does besides, for the document.
type move struct {
	from state
	on   input
	to   state
	does string
}

// senderMoves is all that a sender does. Whatever is missing breaks the protocol: a frame is then
// treated as bad, anything else is a broken invariant of ours.
var senderMoves = []move{
	{asking, onAccept, writing, "tells the engine from where to send"},
	{asking, onRefuse, failed, "nothing was sent but the opening frame"},
	{asking, onBeat, asking, "waits for room at the receiver"},
	{asking, onCancel, failed, "answers cancelled"},
	{asking, onGiveUp, cancelling, "sends cancel"},
	{asking, onBad, failed, "closes"},
	{asking, onTimeout, failed, "closes"},
	{asking, onClosed, failed, ""},

	{writing, onAck, writing, "a chunk is safe"},
	{writing, onBeat, writing, ""},
	{writing, onFinish, sealing, "sends the last seal"},
	{writing, onRefuse, failed, "closes"},
	{writing, onCancel, failed, "answers cancelled"},
	{writing, onGiveUp, cancelling, "sends cancel"},
	{writing, onBad, failed, "closes"},
	{writing, onTimeout, failed, "closes"},
	{writing, onClosed, failed, ""},

	{sealing, onAck, sealing, "a chunk is safe"},
	{sealing, onLastAck, done, "delivered; closes"},
	{sealing, onBeat, sealing, ""},
	{sealing, onRefuse, failed, "closes"},
	{sealing, onCancel, failed, "answers cancelled"},
	{sealing, onGiveUp, cancelling, "sends cancel"},
	{sealing, onBad, failed, "closes"},
	{sealing, onTimeout, failed, "closes"},
	{sealing, onClosed, failed, ""},

	{cancelling, onAccept, cancelling, "crossed the cancel"},
	{cancelling, onAck, cancelling, "crossed the cancel"},
	{cancelling, onLastAck, cancelling, "crossed the cancel: delivered, but not wanted"},
	{cancelling, onBeat, cancelling, ""},
	{cancelling, onGiveUp, cancelling, ""},
	{cancelling, onCancelled, failed, "closes"},
	{cancelling, onCancel, failed, "both gave up; closes"},
	{cancelling, onRefuse, failed, "closes"},
	{cancelling, onBad, failed, "closes"},
	{cancelling, onTimeout, failed, "closes"},
	{cancelling, onClosed, failed, ""},
}

// receiverMoves is all that the receiver's end of a connection does.
var receiverMoves = []move{
	{expecting, onOpen, writing, "sends accept"},
	{expecting, onFull, queued, ""},
	{expecting, onBad, refused, "sends refuse; the lease, if there is one, is untouched"},
	{expecting, onTimeout, closed, "a slow opener"},
	{expecting, onClosed, closed, ""},

	{queued, onRoom, writing, "sends accept"},
	{queued, onBeat, queued, ""},
	{queued, onCancel, closed, "answers cancelled"},
	{queued, onRelease, cancelling, "sends cancel"},
	{queued, onBad, refused, "sends refuse"},
	{queued, onTimeout, refused, "sends refuse"},
	{queued, onClosed, closed, ""},

	{writing, onData, writing, "writes the slots"},
	{writing, onSeal, writing, "sends ack"},
	{writing, onLastSeal, sealed, "sends ack; delivered"},
	{writing, onBeat, writing, ""},
	{writing, onCancel, closed, "answers cancelled"},
	{writing, onRelease, cancelling, "sends cancel"},
	{writing, onBad, refused, "sends refuse"},
	{writing, onTimeout, refused, "sends refuse"},
	{writing, onClosed, closed, ""},

	{sealed, onBeat, sealed, ""},
	{sealed, onCancel, closed, "answers cancelled; the delivery stands"},
	{sealed, onRelease, sealed, "the writer is fenced already"},
	{sealed, onBad, closed, ""},
	{sealed, onTimeout, closed, ""},
	{sealed, onClosed, closed, ""},

	{refused, onRelease, refused, ""},
	{refused, onTimeout, closed, ""},
	{refused, onClosed, closed, ""},

	{cancelling, onData, cancelling, "throws it away"},
	{cancelling, onSeal, cancelling, "throws it away"},
	{cancelling, onLastSeal, cancelling, "throws it away"},
	{cancelling, onBeat, cancelling, ""},
	{cancelling, onRelease, cancelling, ""},
	{cancelling, onCancelled, closed, ""},
	{cancelling, onCancel, closed, "both gave up"},
	{cancelling, onBad, closed, ""},
	{cancelling, onTimeout, closed, ""},
	{cancelling, onClosed, closed, ""},
}

// moves is a table as the machines read it: the next state, or none.
type moves [states][inputs]state

var (
	senderTable   = index(senderMoves)
	receiverTable = index(receiverMoves)
)

func index(list []move) *moves {
	var m moves
	for _, line := range list {
		if m[line.from][line.on] != none {
			panic(fmt.Sprintf("transfer: two moves from %v on %v", line.from, line.on))
		}
		m[line.from][line.on] = line.to
	}
	return &m
}
