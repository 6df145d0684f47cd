package transfer

import (
	"errors"
	"net"
)

// Mux tells micro-serving HTTP and KV frames apart on one port by their first byte: an HTTP method
// starts with an ASCII letter, a frame does not.
type Mux struct{}

// NewMux takes connections from l until Close. Frame connections go to r; with r nil they are closed.
func NewMux(l net.Listener, r *Receiver) *Mux { return &Mux{} }

// HTTP is the listener for the HTTP server. Closing it closes the Mux.
func (m *Mux) HTTP() net.Listener { return nil }

// Close stops listening and ends the connections whose kind is not known yet.
func (m *Mux) Close() error { return errors.New("not built") }
