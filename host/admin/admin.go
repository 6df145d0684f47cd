// Package admin is the HTTP face for the operator: policies, reload and what goes on. It is served
// on a unix socket that only the owner can open, or on loopback; never on the listeners of
// applications.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/kvrelay/engine/plugins"
)

// MaxBody bounds a request: a module at its limit, in base64, and its settings.
const MaxBody = 16 << 20

// Policies is what the routes need of a plugins.Host.
type Policies interface {
	Load(ctx context.Context, s plugins.Spec) (plugins.Status, error)
	Activate(name string) (plugins.Swap, error)
	ActivatePart(part plugins.Part, name string) (plugins.Swap, error)
	Places
}

// Places is what else is asked of a plugins.Host: what was loaded and what decided.
type Places interface {
	Rollback() (plugins.Swap, error)
	RollbackTo(ctx context.Context, number uint64) (plugins.Swap, error)
	Unload(name string) error
	Lister
}

// Lister tells of the modules of a plugins.Host.
type Lister interface {
	List() []plugins.Status
	History() []plugins.Past
}

// Options are what the routes act on.
type Options struct {
	// Policies is nil on an instance that runs none, such as a router.
	Policies Policies
	// Named finds a module that the instance knows by name: a built-in one or one of its file.
	Named func(name string) (plugins.Spec, error)
	// Limits are those that a module given by its bytes gets.
	Limits plugins.Limits
	// Reload reads the configuration again and applies what it can.
	Reload func(ctx context.Context) (Reloaded, error)
	// State says what the instance does now.
	State func(ctx context.Context) State
	// Explain says what happened to a request; nil on a router.
	Explain func(ctx context.Context, id string) (Explained, error)
	// Drain begins or ends draining, if asked, and says what is under way.
	Drain func(ctx context.Context, ask Drain) (Drained, error)
	// Fleet changes who stands behind a router; nil on an instance that is none.
	Fleet Fleet
	// Trace writes the latest events as a document for Perfetto and Chrome.
	Trace func(w io.Writer) error
	// Dashboard is the dashboard for Grafana.
	Dashboard []byte
}

// LoadPolicy asks for a module: by its bytes, or by a name that the instance knows when Wasm is
// empty.
type LoadPolicy struct {
	Name   string          `json:"name"`
	Wasm   []byte          `json:"wasm,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
	// Reasons are words for the reason numbers of the module's decisions.
	Reasons  map[uint16]string `json:"reasons,omitempty"`
	Activate bool              `json:"activate"`
	// Part is what it is to decide, the other part staying as it is; "" is everything.
	Part plugins.Part `json:"part,omitempty"`
}

// Loaded answers a LoadPolicy. Swap is nil when it was not activated.
type Loaded struct {
	Status plugins.Status `json:"status"`
	Swap   *plugins.Swap  `json:"swap,omitempty"`
}

// Rollback asks for what decided before, for what a swap of the history made decide, or for a
// policy by name.
type Rollback struct {
	To     string `json:"to"`
	Number uint64 `json:"number"`
}

// Unload asks to forget the modules of a name.
type Unload struct {
	Name string `json:"name"`
}

// Unloaded answers an Unload.
type Unloaded struct {
	Name string `json:"name"`
}

// History is what decided when, the latest first.
type History struct {
	Entries []plugins.Past `json:"entries"`
}

// Drain asks an instance to finish what it has and to take nothing new, or to take requests again;
// a nil Draining only asks how far it is.
type Drain struct {
	Draining *bool `json:"draining,omitempty"`
}

// Drained says whether an instance drains, and how many requests are under way.
type Drained struct {
	Draining bool `json:"draining"`
	UnderWay int  `json:"under_way"`
}

// Change is one key that differs from the running configuration.
type Change struct {
	Key     string `json:"key"`
	Old     string `json:"old"`
	New     string `json:"new"`
	Applied bool   `json:"applied"`
	Note    string `json:"note"`
}

// Reloaded says what a reload did. Problems is the text of what is wrong with the file, which then
// changed nothing.
type Reloaded struct {
	Changes    []Change `json:"changes"`
	Generation int      `json:"generation"`
	Problems   string   `json:"problems,omitempty"`
}

// Failure is the answer of every call that did not succeed.
type Failure struct {
	Error string `json:"error"`
}

// Handler serves the routes.
func Handler(o Options) http.Handler {
	s := &server{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /policies", answer(s.list))
	mux.HandleFunc("POST /policies/load", answer(s.load))
	mux.HandleFunc("POST /policies/rollback", answer(s.rollback))
	mux.HandleFunc("POST /policies/unload", answer(s.unload))
	mux.HandleFunc("GET /policies/history", answer(s.history))
	mux.HandleFunc("POST /reload", answer(s.reload))
	mux.HandleFunc("POST /drain", answer(s.drain))
	mux.HandleFunc("POST /explain", answer(s.explain))
	mux.HandleFunc("GET /instances", answer(s.instances))
	mux.HandleFunc("POST /instances", answer(s.changeInstances))
	mux.HandleFunc("GET /state", answer(s.state))
	mux.HandleFunc("GET /trace", s.trace)
	mux.HandleFunc("GET /dashboard", s.dashboard)
	return mux
}

type server struct{ options Options }

// answer turns a function into a handler: bounded body in, JSON out. Requests that a page in a
// browser makes are refused, for loopback is open to those.
func answer[T any](f func(ctx context.Context, body []byte) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			write(w, http.StatusForbidden, Failure{"requests from a web page are refused"})
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			write(w, http.StatusBadRequest, Failure{"read the request: " + err.Error()})
			return
		}
		value, err := f(r.Context(), body)
		if err != nil {
			write(w, http.StatusBadRequest, Failure{err.Error()})
			return
		}
		write(w, http.StatusOK, value)
	}
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // An operator who is gone notices nothing.
}

func (s *server) drain(ctx context.Context, body []byte) (Drained, error) {
	var ask Drain
	if err := json.Unmarshal(body, &ask); err != nil {
		return Drained{}, errors.New("the request is not understood: " + err.Error())
	}
	return s.options.Drain(ctx, ask)
}

func (s *server) reload(ctx context.Context, _ []byte) (Reloaded, error) {
	return s.options.Reload(ctx)
}
