package transfer

import (
	"fmt"
	"slices"

	"github.com/kvrelay/engine/host/transfer/lanes"
)

// Transport is how a connection carries bytes.
type Transport string

// The transports. All but TCP are for two processes of one user on one host. The last three are
// shared memory with a lane: memory of the host that both devices reach, memory of the one device
// on which both compute, memory of the receiver's device that the sender's reaches. A sender that
// may use Shared takes Pinned where it can, and one that may use IPC takes Peer.
const (
	TCP    Transport = "tcp"
	Unix   Transport = "unix"
	Shared Transport = "shm"
	Pinned Transport = lanes.Pinned
	IPC    Transport = lanes.IPC
	Peer   Transport = lanes.Peer
)

// maxWay bounds the name of a socket in a way frame.
const maxWay = 64

// way is where else a receiver is reached: the name of a socket in the folder of both ends, none
// if there is no such way, and the transports that begin there.
type way struct {
	name string
	by   []Transport
}

// wayBits are the transports of a way, as bits on the wire.
var wayBits = []Transport{Unix, Shared, Pinned, IPC}

func (w way) append(dst []byte) []byte {
	var bits byte
	for i, t := range wayBits {
		if slices.Contains(w.by, t) {
			bits |= 1 << i
		}
	}
	return appendText(append(dst, bits), w.name)
}

// readWay reads the payload of a way frame. Bits that are not known are ways that we do not take.
func readWay(payload []byte) (w way, bad *Error) {
	r := cursor{rest: payload}
	bits := r.take(1)
	w.name = r.text()
	if r.bad || len(r.rest) != 0 || len(w.name) > maxWay {
		return way{}, fault(Malformed, "a way of %d bytes does not add up", len(payload))
	}
	for i, t := range wayBits {
		if bits[0]&(1<<i) != 0 {
			w.by = append(w.by, t)
		}
	}
	return w, nil
}

// way is what a receiver answers to who asks for a nearer way.
func (o *ReceiverOptions) way() way {
	if o.Nearby == nil {
		return way{}
	}
	w := way{name: o.Nearby.Name(), by: []Transport{Unix, Shared}}
	if o.Lanes != nil && allLanes(o.Models) {
		w.by = append(w.by, Pinned, IPC)
	}
	return w
}

// checkTransports says what is wrong with a sender's list.
func checkTransports(list []Transport) error {
	for _, t := range list {
		if t != TCP && t != Unix && t != Shared && t != IPC {
			return fmt.Errorf("transport %q: want tcp, unix, shm or ipc", t)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no transport is allowed: want some of tcp, unix, shm, ipc")
	}
	return nil
}
