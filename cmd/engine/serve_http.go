package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/api"
)

// servers are the listeners of one instance.
type servers struct {
	log    *slog.Logger
	failed func(error) // a listener broke while serving
	list   []*http.Server
	wait   sync.WaitGroup
	// Where they listen, for people.
	api, internal, admin string
}

// Bounds that protect a listener from clients that dawdle.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	closeTimeout  = 3 * time.Second
)

// errTaken is why a socket cannot be listened on that is in use.
var errTaken = errors.New("another instance listens there")

// listen opens host:port or unix:PATH.
func listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: %w; give this one another node.name or listen.admin",
			address, errTaken)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// listenInternal opens the listener of routers and other instances; nil when there is none.
func (s *servers) listenInternal(address string) (net.Listener, string, error) {
	if address == "" {
		return nil, "", nil
	}
	l, err := listen(address)
	if err != nil {
		return nil, "", fmt.Errorf("listen.internal: %w", err)
	}
	s.internal = l.Addr().String()
	return l, s.internal, nil
}

// open serves the applications' listener, if the configuration names one.
func (s *servers) open(address string, secured *tls.Config, server *api.Server,
	handler http.Handler,
) error {
	if address == "" {
		return nil
	}
	l, err := listen(address)
	if err != nil {
		return fmt.Errorf("listen.api: %w", err)
	}
	s.api = l.Addr().String()
	s.serveWith(l, secured, server, handler)
	return nil
}

// openAdmin serves the operator's listener.
func (s *servers) openAdmin(address string, handler http.Handler) error {
	l, err := listen(address)
	if err != nil {
		return fmt.Errorf("listen.admin: %w", err)
	}
	s.admin = address
	s.serve(l, nil, handler)
	return nil
}

// serve answers on a listener until close.
func (s *servers) serve(l net.Listener, counted *api.Server, handler http.Handler) {
	s.serveWith(l, nil, counted, handler)
}

// serveWith answers behind a certificate, unless it is nil.
func (s *servers) serveWith(l net.Listener, secured *tls.Config, counted *api.Server,
	handler http.Handler,
) {
	h := &http.Server{TLSConfig: secured, Handler: handler, ReadHeaderTimeout: headerTimeout,
		IdleTimeout: idleTimeout,
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	if counted != nil {
		counted.Limit(h)
		l = counted.Listen(l)
	}
	s.list = append(s.list, h)
	s.wait.Go(func() {
		err := serveOn(h, l)
		if !errors.Is(err, http.ErrServerClosed) && s.failed != nil {
			s.failed(fmt.Errorf("serve %s: %w", l.Addr(), err))
		}
	})
}

// serveOn serves TLS where the server has a certificate.
func serveOn(h *http.Server, l net.Listener) error {
	if h.TLSConfig != nil {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

// close lets answers that are being written end for a moment, then closes all connections.
func (s *servers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, h := range s.list {
		if h.Shutdown(ctx) != nil {
			_ = h.Close() // It ends whatever it can.
		}
	}
	s.wait.Wait()
	if path, unix := strings.CutPrefix(s.admin, "unix:"); unix {
		_ = os.Remove(path) // The listener removes it too.
	}
}
