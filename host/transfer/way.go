package transfer

import (
	"fmt"
	"slices"
)

// Transport is how a connection carries bytes.
type Transport string

// The transports. Unix and Shared are for two processes of one user on one host.
const (
	TCP    Transport = "tcp"
	Unix   Transport = "unix"
	Shared Transport = "shm"
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
var wayBits = []Transport{Unix, Shared}

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
	return way{name: o.Nearby.Name(), by: []Transport{Unix, Shared}}
}

// checkTransports says what is wrong with a sender's list.
func checkTransports(list []Transport) error {
	for _, t := range list {
		if t != TCP && t != Unix && t != Shared {
			return fmt.Errorf("transport %q: want tcp, unix or shm", t)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no transport is allowed: want some of tcp, unix, shm")
	}
	return nil
}
