// Package router fronts many instances: it pairs a prefill and a decode instance for each
// request, drives them by the micro-serving calls, and hands the tokens on. It is a
// generation.Source, so the same API serves it as serves an engine. It learns the model's
// tokenizer from its instances.
//
// What always holds:
//
//  1. A reader sees each token once, whichever instances generated them: what was handed on is
//     part of the prompt of the instance that goes on.
//  2. A client that goes away ends the calls of its request, and its reservation is released.
//  3. What a request counted as in flight is counted down on every way out.
package router

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/trace"
)

// Endpoint is one instance: its name and the URL of its internal listener.
type Endpoint struct{ Name, URL string }

// Options are the instances and how patient the router is with them.
type Options struct {
	Prefill, Decode []Endpoint
	// Retries is how many other instances are tried for a request, anew after each token that one
	// of them brought.
	Retries int
	// FailLost makes it an error when the decode instance of a stream is lost in its middle.
	// Otherwise another one goes on behind the tokens that were handed on.
	FailLost bool
	// Balance says how a prompt is shared between a prefill and a decode instance.
	Balance placement.Balance
	// ConnectTimeout bounds the dialling, HealthInterval is how often instances are asked.
	ConnectTimeout, HealthInterval time.Duration
	// Mend says, behind a space, which settings make a part of openai.Instance equal at two
	// instances, the one that is refused and the other; "" where none do, nil never says.
	Mend  func(part, here, there string) string
	Watch Watch
	Log   *slog.Logger
	// Tracer records spans, Ring the latest events; nil records none.
	Tracer *trace.Tracer
	Ring   *trace.Ring
}

// Watch hears what the metrics count. Its methods are called from many goroutines.
type Watch interface {
	// Placed tells whether a prompt was prefilled remotely, or locally on the decode instance.
	Placed(decision string)
	// Retried tells why a request was tried again.
	Retried(reason string)
	// Instances gives the state of all instances.
	Instances([]placement.Instance)
}

// Router pairs instances and drives them.
type Router struct {
	options Options
	client  *http.Client
	closing chan struct{} // closed by Close
	made    time.Time
	progress

	mu     sync.Mutex
	roster *roster
	urls   map[placement.Role]map[string]string
	pool   *placement.Pool
	model  *Model
	known  map[string]openai.Instance // by role/name, what each last said
	asking map[string]bool            // by role/name, whom Run asks now
	speaks map[string]bool            // by role/name, who answers who it is, fit or not
	led    string                     // the digest of the kind that was used at the latest check
	// refusals tell, by role/name, why the latest check failed of those whose did.
	refusals map[string]error
	changed  chan struct{} // Run is to ask the instances now
}

// New returns a router that has met no instance yet. Run makes it meet them.
func New(o Options) (*Router, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Watch == nil {
		o.Watch = deaf{}
	}
	if o.Mend == nil {
		o.Mend = func(string, string, string) string { return "" }
	}
	r := &Router{options: o, known: map[string]openai.Instance{},
		asking: map[string]bool{}, speaks: map[string]bool{}, refusals: map[string]error{},
		changed: make(chan struct{}, 1), closing: make(chan struct{}),
		made: time.Now(),
		urls: map[placement.Role]map[string]string{placement.Prefill: {}, placement.Decode: {}},
		client: &http.Client{Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: o.ConnectTimeout}).DialContext,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		}},
	}
	var err error
	if r.pool, err = placement.New(nil, nil); err != nil {
		return nil, err
	}
	r.roster = &roster{}
	return r, r.Replace(o.Prefill, o.Decode)
}

func names(list []Endpoint) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name
	}
	return names
}

// Place is where one instance is. Problem says why it is not used; "" where nothing is known
// against it.
type Place struct {
	placement.Instance
	URL     string
	State   State
	Problem string
}

// Instances lists the instances with where they are.
func (r *Router) Instances() []Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	var places []Place
	for _, i := range r.pool.Snapshot() {
		state, problem := r.state(i)
		places = append(places, Place{i, r.urls[i.Role][i.Name], state, problem})
	}
	return places
}

// url is where an instance is.
func (r *Router) url(role placement.Role, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.urls[role][name]
}

type deaf struct{}

func (deaf) Placed(string)                  {}
func (deaf) Retried(string)                 {}
func (deaf) Instances([]placement.Instance) {}

// Close ends every request that is on its way with an error that says so. It is called once.
func (r *Router) Close() { close(r.closing) }

// Ready says why no request can be served now; nil when one can.
func (r *Router) Ready() *openai.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pool.Ready() {
		return r.nobody()
	}
	if r.model == nil {
		return openai.Errorf(openai.CodeModelLoading, "", "no instance has told its model yet")
	}
	return nil
}

// Model is the model that the instances serve.
func (r *Router) Model() (*Model, *openai.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.model == nil {
		return nil, openai.Errorf(openai.CodeModelLoading, "", "no instance has told its model yet")
	}
	return r.model, nil
}

// balance says how prompts are shared.
func (r *Router) balance() placement.Balance { return r.options.Balance }

// lose makes an instance the last resort until it answers a check.
func (r *Router) lose(role placement.Role, name string, cause error) {
	var down bool
	r.settle(func(p *placement.Pool) { down = p.Suspect(role, name) })
	if down {
		r.options.Log.Warn("instance is lost", "instance", name, "role", role.String(), "error",
			cause)
	}
}

// settle changes a ticket under the lock and tells the watch.
func (r *Router) settle(change func(*placement.Pool)) {
	r.mu.Lock()
	change(r.pool)
	all := r.pool.Snapshot()
	r.mu.Unlock()
	r.options.Watch.Instances(all)
}

// unreachable reports whether an error means that an instance did not answer, as against that it
// refused.
func unreachable(err error) bool {
	_, refused := errors.AsType[*openai.Error](err)
	return !refused && !errors.Is(err, context.Canceled) && !errors.Is(err,
		context.DeadlineExceeded)
}
