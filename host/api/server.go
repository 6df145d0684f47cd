// Package api is the HTTP face of an instance: the OpenAI-compatible routes, the micro-serving
// calls, health and metrics. It decodes and bounds what comes in, turns text into tokens and
// tokens into text, and maps every failure to one status and one JSON shape.
//
// What always holds:
//
//  1. Every answer that is no success is an error object, from every route.
//  2. A client that goes away cancels what it asked for, wherever that runs.
//  3. A stream that failed ends with an error event; it never just stops.
package api

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvrelay/engine/host/access"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/trace"
)

// Options are what a server serves and its bounds.
type Options struct {
	// Model is asked for with each request; a router has none before it met an instance.
	Model func() (*Model, *openai.Error)
	// Source generates. It may be nil where only micro-serving calls are served.
	Source generation.Source
	// Handoff takes the micro-serving calls; nil where there are none.
	Handoff generation.Handoff
	// Ready says why the instance takes no requests now; nil when it does.
	Ready func() *openai.Error
	// Leaving says that the instance will soon take nothing new: probes are told so first.
	Leaving func() *openai.Error
	// Draining says that nothing new is taken, while what is under way goes on; nil when it is.
	Draining func() *openai.Error
	// Stalled says since when work has waited without anything having run; 0 when it does not.
	// Stall is how long is too long.
	Stalled func() time.Duration
	Stall   time.Duration
	// Metrics serves /metrics.
	Metrics http.Handler
	// Identity describes the instance to a router.
	Identity func() openai.Instance
	// Policy names the active policy.
	Policy func() string
	// Seed draws the seed of a request that brings none.
	Seed func() uint64

	MaxBody int64
	MaxStop int
	// MaxN bounds the answers to one prompt, MaxHeader the bytes of a request's headers; 0 leaves
	// the headers to the HTTP server.
	MaxN, MaxHeader int
	// RequestTimeout bounds a whole request, WriteTimeout the wait for a client that takes nothing,
	// KeepAlive the silence in a stream; 0 turns the last off.
	RequestTimeout, WriteTimeout, KeepAlive time.Duration
	// MaxConnections bounds the connections of one listener.
	MaxConnections int

	// Gate says who may enter by the applications' listener; nil lets everybody in.
	Gate *access.Gate
	// Page serves the page at /ui and what it shows; nil where there is none.
	Page *Page
	// LogPrompts puts prompts and outputs in the log.
	LogPrompts bool

	// Tracer records spans, Ring the latest events; nil records none.
	Tracer *trace.Tracer
	Ring   *trace.Ring

	Watch Watch
	Log   *slog.Logger
}

// Watch hears what the metrics count. Its methods are called from many goroutines.
type Watch interface {
	// Answered is called once a request with its route's pattern.
	Answered(route string, status int)
	// Rejected is called with the code of each refusal.
	Rejected(code string)
	// Connections is the change in open connections.
	Connections(change int)
	// Timed is called with the tokens of an answer as they come.
	Timed(Timed)
}

// Timed says how long tokens took: since the request came for the first of an answer, since those
// before for the others.
type Timed struct {
	// Front says that an application asked, First that they are an answer's first.
	Front, First bool
	Took         time.Duration
	Tokens       int
	// Timing is how Took was spent; of the first alone.
	Timing openai.Timing
}

// Server answers HTTP requests.
type Server struct {
	options Options
	bodies  room
	groups  atomic.Uint32 // calls that brought several requests
	active  atomic.Int64  // requests under way on the routes that generate
}

// Active counts the requests for tokens that are under way.
func (s *Server) Active() int { return int(s.active.Load()) }

// counted is a route that Active counts.
func (s *Server) counted(handle func(*exchange)) func(*exchange) {
	return func(x *exchange) {
		s.active.Add(1)
		defer s.active.Add(-1)
		x.span = s.options.Tracer.Start(x.r.Method+" "+x.r.URL.Path, trace.Server,
			x.r.Header.Get(trace.Header))
		defer func() {
			failure := ""
			if code := x.w.status(); code >= http.StatusBadRequest {
				failure = http.StatusText(code)
				x.span.Set("http.response.status_code", code)
			}
			x.span.End(failure)
		}()
		handle(x)
	}
}

// New returns a server.
func New(o Options) *Server {
	if o.Watch == nil {
		o.Watch = deaf{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() *openai.Error { return nil }
	}
	if o.Policy == nil {
		o.Policy = func() string { return "" }
	}
	if o.Leaving == nil {
		o.Leaving = func() *openai.Error { return nil }
	}
	if o.Draining == nil {
		o.Draining = func() *openai.Error { return nil }
	}
	if o.Stalled == nil {
		o.Stalled = func() time.Duration { return 0 }
	}
	return &Server{options: o}
}

type deaf struct{}

func (deaf) Answered(string, int) {}
func (deaf) Rejected(string)      {}
func (deaf) Connections(int)      {}
func (deaf) Timed(Timed)          {}

// API serves the listener of applications.
func (s *Server) API() http.Handler {
	list := []route{
		{"POST", "/v1/completions", s.counted(s.completions)},
		{"POST", "/v1/chat/completions", s.counted(s.chat)},
		{"GET", "/v1/models", s.models},
		{"GET", "/v1/models/", s.oneModel},
		{"GET", "/metrics", s.metrics},
	}
	list = append(list, s.healthRoutes()...)
	list = append(list, s.tokenRoutes()...)
	return s.routes(append(list, s.pageRoutes()...), s.options.Gate)
}

// Internal serves the listener of routers and other instances.
func (s *Server) Internal() http.Handler {
	return s.routes(append(s.healthRoutes(), []route{
		{"POST", openai.PathPrepareReceive, s.counted(s.prepareReceive)},
		{"POST", openai.PathRemoteSend, s.counted(s.remoteSend)},
		{"POST", openai.PathStartGenerate, s.counted(s.startGenerate)},
		{"POST", openai.PathCommit, s.commit},
		{"POST", openai.PathRelease, s.release},
		{"GET", openai.PathInstance, s.instance},
		{"GET", openai.PathFiles, s.files},
		{"GET", "/metrics", s.metrics},
	}...), nil)
}

// Health serves what an internal listener without micro-serving calls has.
func (s *Server) Health() http.Handler {
	return s.routes(append(s.healthRoutes(), route{"GET", "/metrics", s.metrics}), nil)
}

// exchange is one request and its answer.
type exchange struct {
	w        *recorder
	r        *http.Request
	id       string // of the request, in logs and error texts
	accepted time.Time
	visit    *access.Visit // nil where nobody is asked
	held     held          // room for its body
	span     *trace.Span   // nil where none is recorded
	timed    bool          // the header with the timing is set
}

// route is a method and a path, exact or ending in /.
type route struct {
	method, path string
	handle       func(*exchange)
}

// public are the routes that need no key: what probes ask, and the page's own files.
func public(path string) bool {
	return path == "/live" || path == "/ready" || path == "/health" || path == pathProgress ||
		path == pagePath ||
		strings.HasPrefix(path, pagePath+"/") && path != pageState
}

// routes dispatches by path and method, so that a wrong one gets our error and not plain text. With
// a gate all but the public routes need its consent.
func (s *Server) routes(list []route, gate *access.Gate) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{w: &recorder{ResponseWriter: w}, r: r, id: requestID(r),
			accepted: time.Now(), held: held{room: &s.bodies}}
		x.limitReading()
		x.w.Header().Set("X-Request-Id", x.id)
		pattern := s.dispatch(list, gate, x)
		s.options.Watch.Answered(pattern, x.w.status())
		s.logAccess(x)
	})
}

// dispatch answers x and returns the pattern that metrics count it under.
func (s *Server) dispatch(list []route, gate *access.Gate, x *exchange) (pattern string) {
	defer x.held.release()
	defer s.recoverPanic(x)
	// Who only asks whether we live is told so: we would be restarted for having much to do.
	over := overLimit(x.r)
	if over {
		x.w.Header().Set("Connection", "close")
	}
	if over && x.r.URL.Path != "/live" {
		s.fail(x, openai.Errorf(openai.CodeTooManyConnections, "",
			"%d connections are open already; try again later", s.options.MaxConnections))
		return "refused"
	}
	if size := headerSize(x.r); s.options.MaxHeader > 0 && size > s.options.MaxHeader {
		x.w.Header().Set("Connection", "close")
		s.fail(x, openai.Errorf(openai.CodeHeadersTooLarge, "", "the headers have %d bytes, more "+
			"than the limit of %d (api.max_header)", size, s.options.MaxHeader))
		return "refused"
	}
	if gate != nil && !public(x.r.URL.Path) {
		var fault *openai.Error
		if x.visit, fault = gate.Enter(x.w.Header(), x.r); fault != nil {
			s.fail(x, fault)
			return "refused"
		}
		defer x.visit.Leave()
	}
	allowed := ""
	for _, route := range list {
		if !matches(route.path, x.r.URL.Path) {
			continue
		}
		if route.method == x.r.Method || route.method == "GET" && x.r.Method == "HEAD" {
			route.handle(x)
			return route.path
		}
		allowed = route.method
	}
	if allowed != "" {
		x.w.Header().Set("Allow", allowed)
		s.fail(x, openai.Errorf(openai.CodeMethodNotAllowed, "", "%s needs %s, not %s",
			x.r.URL.Path, allowed, x.r.Method))
		return "wrong method"
	}
	s.fail(x, openai.Errorf(openai.CodeUnknownURL, "", "there is no %s here", x.r.URL.Path))
	return "unknown"
}

func matches(pattern, path string) bool {
	if n := len(pattern); pattern[n-1] == '/' {
		return len(path) > n && path[:n] == pattern
	}
	return pattern == path
}

// recoverPanic turns a bug of ours into an internal error for this one client.
func (s *Server) recoverPanic(x *exchange) {
	cause := recover()
	if cause == nil {
		return
	}
	s.options.Log.Error("request handler panicked", "id", x.id, "cause", cause, "stack", stack())
	if x.w.status() == 0 {
		s.fail(x, openai.Errorf(openai.CodeInternal, "", "an internal error; request %s", x.id))
	}
}
