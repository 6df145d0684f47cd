// Package lanes lends memory from a receiver of keys and values to a sender on the same host, so
// that the sender's device puts them there by itself and the receiver's takes them from there.
// A lane is such memory: shared memory of the host that both devices have registered, or memory of
// the receiver's device that the sender's maps by a handle.
//
// What always holds:
//
//  1. A lane is the receiver's and belongs to one connection at a time. Nobody but the receiver
//     writes to pages: what comes late into a lane reaches none.
//  2. A lane gets no other use before what the last sender began in it is known to be over: the
//     sender's own marks say so, or its process is gone, and with that all that its device did.
//  3. The sender believes neither a handle nor a file: it reads a word in the lane that only the
//     receiver could have written there a moment ago.
//  4. A lane that cannot be had is no failure: the connection is made without.
package lanes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Card says which device a process computes on.
type Card interface {
	// Identity tells the device apart from every other one; empty where that cannot be told.
	Identity() string
	// Reaches says whether lanes can be borrowed from a device: the same, or a linked one.
	Reaches(identity string) bool
}

// Memory makes lanes, known by numbers.
type Memory interface {
	// AttachLane registers memory that two processes share, and makes it ready for what is to be
	// taken from it, if that is so; it stays mapped until DetachLane.
	AttachLane(memory []byte, takes bool) (lane int, err error)
	// LendLane allocates memory of the device, and a handle by which another process borrows it.
	LendLane(bytes int) (lane int, handle []byte, err error)
	BorrowLane(handle []byte, bytes int, identity string) (lane int, err error)
	// DetachLane ends a lane of any of these when what is under way in it is done.
	DetachLane(lane int) error
}

// Word reads and writes a few bytes of a lane.
type Word interface {
	PokeLane(lane, at int, src []byte) error
	PeekLane(lane, at int, dst []byte) error
}

// Device is what a process needs of its device.
type Device interface {
	Card
	Memory
	Word
}

// Kind is where a lane lies.
type Kind byte

// The kinds.
const (
	OnHost   Kind = 'h' // shared memory that both devices have registered
	OnDevice Kind = 'd' // memory of the receiver's device
)

// How connections with a lane are called in metrics.
const (
	Pinned = "pinned" // by registered memory of the host
	IPC    = "ipc"    // by memory of the device that both processes compute on
	Peer   = "peer"   // by memory of the receiver's device, from another one
)

// Limits.
const (
	// DefaultBytes is the size of a lane: of two layers of 4096 tokens of Llama-3.1-8B.
	DefaultBytes = 32 << 20
	// DefaultMost is how many lanes of a kind a receiver has at most. They are made when they are
	// needed, and stay.
	DefaultMost = 8
	// leastBytes and mostBytes bound what a sender maps.
	leastBytes, mostBytes = 4 << 10, 1 << 30
	// mostIdle is how many lanes a sender keeps open that no connection of its uses.
	mostIdle = 64
	// mostName bounds an identity and a handle, in bytes.
	mostName = 128
)

// id is a lane's name, never given twice; word is what the receiver writes at its start.
type (
	id   [16]byte
	word [16]byte
)

// ask is what a sender says: the kind that it wants, and the identity of its device.
func ask(k Kind, identity string) []byte { return append([]byte{byte(k)}, identity...) }

// readAsk is the inverse of ask.
func readAsk(words []byte) (k Kind, identity string, err error) {
	if len(words) == 0 || len(words) > mostName || Kind(words[0]) != OnHost &&
		Kind(words[0]) != OnDevice {
		return 0, "", fmt.Errorf("%.20q asks for no kind of lane", words)
	}
	return Kind(words[0]), string(words[1:]), nil
}

// grant is what a receiver says of the lane that it lends.
type grant struct {
	kind     Kind
	id       id
	word     word
	bytes    int
	identity string // of the receiver's device
	handle   []byte // of device memory
}

func (g *grant) append(dst []byte) []byte {
	dst = append(dst, byte(g.kind))
	dst = append(append(dst, g.id[:]...), g.word[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(g.bytes))
	dst = append(append(dst, byte(len(g.identity))), g.identity...)
	return append(append(dst, byte(len(g.handle))), g.handle...)
}

var errGrant = errors.New("what the receiver says of a lane does not add up")

// readGrant is the inverse of append, with all limits judged.
func readGrant(src []byte) (g grant, err error) {
	const fixed = 1 + 16 + 16 + 4
	if len(src) < fixed+2 {
		return g, errGrant
	}
	g.kind = Kind(src[0])
	copy(g.id[:], src[1:])
	copy(g.word[:], src[17:])
	g.bytes = int(binary.LittleEndian.Uint32(src[33:]))
	rest := src[fixed:]
	text := func() (t []byte) {
		if len(rest) == 0 || int(rest[0]) > len(rest)-1 || rest[0] > mostName {
			err = errGrant
			return nil
		}
		t, rest = rest[1:1+rest[0]], rest[1+rest[0]:]
		return t
	}
	g.identity = string(text())
	g.handle = bytes.Clone(text())
	switch {
	case err != nil:
	case len(rest) > 0 || g.kind != OnHost && g.kind != OnDevice ||
		(g.kind == OnDevice) != (len(g.handle) > 0):
		err = errGrant
	case g.bytes < leastBytes || g.bytes > mostBytes || g.bytes%256 != 0:
		err = fmt.Errorf("a lane of %d bytes: want %d to %d", g.bytes, leastBytes, mostBytes)
	}
	return g, err
}

// loan is a lane in the hands of a connection.
type loan struct {
	number, bytes int
	network       string
	back          func(quiet func() bool, done func())
}

// Lane implements nearby.Loan.
func (l *loan) Lane() (number, bytes int) { return l.number, l.bytes }

// Network implements nearby.Loan.
func (l *loan) Network() string { return l.network }

// Return implements nearby.Loan.
func (l *loan) Return(quiet func() bool, done func()) { l.back(quiet, done) }
