package transfer

import "time"

// beatsATimeout is how often an end that has nothing else to say is heard in one timeout.
const beatsATimeout = 4

// lingerTime is how long a refusing end reads on, so that the refusal is not lost to a reset.
const lingerTime = 500 * time.Millisecond

// line is what both ends of a connection have: a state, a decoder, bytes to write, and an ear for
// silence. Each end says something at least four times a timeout and fails when it hears not one
// byte for a whole one; so a slow link that progresses is no failure, and a stopped peer is one.
type line struct {
	state   state
	table   *moves
	pass    pass
	timeout time.Duration

	dec     decoder
	scrap   []byte // where bytes go that nobody will read
	out     []byte // frames to be written, in order
	heard   time.Duration
	said    time.Duration
	entered time.Duration // when the state began
	wire    int64         // bytes of frames that crossed, of the direction that carries KV
}

// Output is the bytes to be written to the connection next. They stay until Written.
func (l *line) Output() []byte { return l.out }

// Written says that the first n bytes of what Output was were written.
func (l *line) Written(n int) { l.out = l.out[min(n, len(l.out)):] }

// Space is where the next bytes from the connection are to be put; it is never empty.
func (l *line) Space() []byte {
	if l.deaf() {
		if l.scrap == nil {
			l.scrap = make([]byte, firstBuffer)
		}
		return l.scrap
	}
	return l.dec.space()
}

// feed gives bytes from the connection to one end of it.
func feed(bytes []byte, space func() []byte, filled func(int)) {
	for len(bytes) > 0 {
		n := copy(space(), bytes)
		filled(n)
		bytes = bytes[n:]
	}
}

// deaf says that nothing more is to be read from the peer.
func (l *line) deaf() bool {
	return l.state == refused || l.state == closed || l.state == failed || l.state == done
}

func (l *line) say(k kind, payload []byte, now time.Duration) {
	l.out = appendFrame(l.out, k, l.pass, payload)
	l.said = now
}

// can says whether the table has a move from here.
func (l *line) can(on input) bool { return l.table[l.state][on].to != none }

// does is what the move from here on an input does.
func (l *line) does(on input) action { return l.table[l.state][on].does }

// step moves, and says what there is to do. The move must exist.
func (l *line) step(on input, now time.Duration) action {
	row := l.table[l.state][on]
	if row.to == none {
		panic("transfer: no move from " + l.state.String() + " on " + on.String())
	}
	if row.to != l.state {
		l.state, l.entered = row.to, now
	}
	return row.does
}

// silence is when the peer has been silent for too long, beat when it must hear from us.
func (l *line) silence() time.Duration { return l.heard + l.timeout }
func (l *line) beat() time.Duration    { return l.said + l.timeout/beatsATimeout }

// unexpected is what a frame is that the state has no move for.
func (l *line) unexpected(k kind) *Error {
	return fault(Malformed, "a frame (%v) while %v", k, l.state)
}

func silent(timeout time.Duration) *Error { return fault(Timeout, "nothing heard for %v", timeout) }
