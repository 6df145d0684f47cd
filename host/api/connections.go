package api

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// overKey marks the context of connections beyond the limit.
type overKey struct{}

func overLimit(r *http.Request) bool { return r.Context().Value(overKey{}) != nil }

// Limit makes a server count its connections. Those beyond the limit are answered with 503 and
// closed. Headers are read up to four times their limit, so that most of those who pass it are told
// how many bytes they sent; a flood beyond is cut off (see Listen).
func (s *Server) Limit(server *http.Server) {
	server.MaxHeaderBytes = 4 * s.options.MaxHeader
	server.DisableGeneralOptionsHandler = true
	var open atomic.Int64
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		most := s.options.MaxConnections
		if most > 0 && open.Load() >= int64(most) { // This one is not counted yet.
			return context.WithValue(ctx, overKey{}, true)
		}
		return ctx
	}
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
			s.options.Watch.Connections(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
			s.options.Watch.Connections(-1)
		}
	}
}
