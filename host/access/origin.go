package access

import (
	"net/http"
	"slices"

	"github.com/kvrelay/engine/host/openai"
)

// exposed are the headers of answers that pages of allowed origins may read.
const exposed = "X-Request-Id, Retry-After, X-Engine-Policy, Server-Timing, " +
	"X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, " +
	"X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens"

// preflightSeconds is how long a browser may remember what it was allowed.
const preflightSeconds = "600"

// Origins lets pages of those origins read the answers of next; "*" is any. With none a page reads
// what its own origin serves, and pages of others cannot make the server work either: a browser
// sends simple requests for them although it hides the answers. A preflight is answered before
// anybody is asked for a key, for browsers send none with it.
func Origins(allowed []string, next http.Handler) http.Handler {
	any := slices.Contains(allowed, "*")
	if !any {
		next = ownPages(allowed, next)
	}
	if len(allowed) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, origin := w.Header(), r.Header.Get("Origin")
		h.Add("Vary", "Origin")
		if origin == "" || !any && !slices.Contains(allowed, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if any {
			h.Set("Access-Control-Allow-Origin", "*")
		}
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			h.Set("Access-Control-Expose-Headers", exposed)
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
		h.Set("Access-Control-Max-Age", preflightSeconds)
		w.WriteHeader(http.StatusNoContent)
	})
}

// ownPages refuses what a browser sends for the page of another origin, unless that is allowed.
// Clients that are no browsers say nothing of origins and pass.
func ownPages(allowed []string, next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	for _, origin := range allowed {
		_ = guard.AddTrustedOrigin(origin) // The configuration was checked: it is one.
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Check(r) != nil {
			openai.WriteError(w, openai.Errorf(openai.CodeInvalidValue, "Origin", "pages of "+
				"another origin may not use this API unless api.cors.allow_origins names it"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
