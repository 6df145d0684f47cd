package api

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLogged bounds a text in the log, in bytes.
const maxLogged = 16 << 10

// logged cuts a text to what a log takes, at a whole character.
func logged(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	end := maxLogged
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// logAccess writes a line for each HTTP request. What asks often and says nothing is for debugging.
// A query may hold anything, so it is left out.
func (s *Server) logAccess(x *exchange) {
	level, path := slog.LevelInfo, x.r.URL.Path
	if path == "/live" || path == "/ready" || path == "/health" || path == "/metrics" ||
		strings.HasPrefix(path, "/microserving/") || strings.HasPrefix(path, pagePath) {
		level = slog.LevelDebug
	}
	log := s.options.Log
	if !log.Enabled(context.Background(), level) {
		return
	}
	const maxPath = 256
	line := []any{"id", x.id, "method", x.r.Method, "path", path[:min(len(path), maxPath)],
		"status", x.w.status(), "bytes", x.w.bytes,
		"took", time.Since(x.accepted).Round(time.Microsecond).String(), "client", x.r.RemoteAddr}
	if x.visit.Name() != "" {
		line = append(line, "key", x.visit.Name(), "tenant", x.visit.Tenant())
	}
	log.Log(context.Background(), level, "http request", line...)
}

// note counts what a piece brought, for the limits and, if it may, for the log.
func (s *Server) note(t *task, p piece) {
	t.spent += len(p.tokens)
	if said := &p.answer.said; s.options.LogPrompts && said.Len() < maxLogged {
		said.WriteString(p.text[:min(len(p.text), maxLogged-said.Len())])
	}
}
