package plugins

import "time"

// State says where a module stands.
type State string

// The states of a loaded module.
const (
	StateReady    State = "ready"    // loaded and tried
	StateActive   State = "active"   // decides order and chunk lengths
	StateSelect   State = "select"   // decides the order
	StateChunk    State = "chunk"    // decides the chunk lengths
	StatePrevious State = "previous" // Rollback would make it active again
)

// Status is one line of List.
type Status struct {
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	Generation uint64        `json:"generation"` // counts loads
	State      State         `json:"state"`
	Breaker    Stage         `json:"breaker"` // how far it is trusted
	Since      time.Time     `json:"since"`   // of the state
	Digest     string        `json:"digest"`  // sha256 of the file, hex
	Calls      uint64        `json:"calls"`
	Faults     uint64        `json:"faults"`
	P99        time.Duration `json:"p99_ns"`               // of the latest calls
	Fuel99     int64         `json:"fuel_p99"`             // of the latest calls
	FuelLimit  int64         `json:"fuel_limit"`           // of a decision without changed records
	Memory     int64         `json:"memory_bytes"`         // of the guest, after the latest call
	LastFault  string        `json:"last_fault,omitempty"` // "" if there was none
}

// enter changes a module's state.
func (g *generation) enter(s State) {
	if g.state != s {
		g.state, g.since = s, time.Now()
	}
}

// place brings the states of all modules in line with what decides.
func (h *Host) place() {
	for _, g := range h.modules {
		switch {
		case g == h.order && h.chunk == nil:
			g.enter(StateActive)
		case g == h.order:
			g.enter(StateSelect)
		case g == h.chunk:
			g.enter(StateChunk)
		case h.previous.holds(g):
			g.enter(StatePrevious)
		default:
			g.enter(StateReady)
		}
	}
}

// status is a module's line of List.
func (h *Host) status(g *generation) Status {
	return Status{
		Name: g.name, Version: g.version, Generation: g.number, State: g.state, Since: g.since,
		Breaker: g.breaker.stage(h.now), Digest: g.digest, Calls: g.counts.calls,
		Faults: g.counts.faults, P99: g.counts.p99(), Fuel99: g.counts.fuel99(),
		FuelLimit: g.decideFuel(0), Memory: g.counts.memory, LastFault: g.counts.lastFault,
	}
}

// List returns all modules, in the order of loading.
func (h *Host) List() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Status
	for _, g := range h.modules {
		list = append(list, h.status(g))
	}
	return list
}

// Active returns the module that decides the order, and with it the chunk lengths if no other does;
// false when there is none.
func (h *Host) Active() (Status, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.order == nil {
		return Status{}, false
	}
	return h.status(h.order), true
}
