package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Load checks, meters, compiles, links, initialises and tries a module, and keeps it ready under
// its name, which is the descriptor's if the spec has none. A module of that name that is neither
// active nor previous is forgotten. An error that is the module's fault is a *Fault.
func (h *Host) Load(ctx context.Context, s Spec) (Status, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	return h.load(ctx, s)
}

// load is Load for whoever holds the loading lock.
func (h *Host) load(ctx context.Context, s Spec) (Status, error) {
	g, f := h.loader.load(ctx, s)
	if f != nil {
		h.log.Warn("policy refused", "policy", f.Policy, "class", string(f.Class), "call", f.Call,
			"detail", f.Detail)
		h.observer.Faulted(f)
		return Status{}, f
	}
	status, err := h.keep(g)
	if err != nil {
		g.close()
		return Status{}, err
	}
	g.warm()
	h.log.Info("policy loaded", "policy", g.label, "digest", g.digest, "grown", g.stats.Growth())
	return status, nil
}

// Resize makes room for a longer queue and more decisions than Options named; it never takes room
// away. The active module is loaded again for it. The others keep their tables, and are refused by
// Activate and Rollback until they are loaded again. On an error nothing has changed.
func (h *Host) Resize(ctx context.Context, slots, decisions int) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	before := h.loader
	slots, decisions = max(slots, before.slots), max(decisions, before.decisions)
	if slots == before.slots && decisions == before.decisions {
		return nil
	}
	active := h.size(slots, decisions)
	if active == nil {
		return nil
	}
	status, err := h.load(ctx, active.spec)
	if err == nil {
		_, err = h.Activate(status.Name)
	}
	if err != nil {
		h.size(before.slots, before.decisions)
	}
	return err
}

// size sets what modules are loaded for, and returns the one that is active.
func (h *Host) size(slots, decisions int) *generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loader.slots, h.loader.decisions = slots, decisions
	return h.active
}

// keep puts a loaded module into the list.
func (h *Host) keep(g *generation) (Status, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return Status{}, errors.New("plugins: the host is closed")
	}
	h.loads++
	g.number = h.loads
	h.modules = append(h.modules, g)
	g.enter(StateReady)
	h.prune(g.name, g)
	if len(h.modules) > MaxModules {
		h.modules = h.modules[:len(h.modules)-1]
		return Status{}, fmt.Errorf("plugins: %d modules are loaded, no more are kept; unload one",
			MaxModules)
	}
	return g.status(), nil
}

// prune forgets the modules of a name that are neither kept nor active nor previous.
func (h *Host) prune(name string, kept *generation) {
	h.modules = slices.DeleteFunc(h.modules, func(g *generation) bool {
		if g.name != name || g == kept || g == h.active || g == h.previous {
			return false
		}
		h.retire(g)
		return true
	})
}

// retire closes a module that is no longer in the list, beside the engine.
func (h *Host) retire(g *generation) {
	h.closing.Add(1)
	go func() {
		defer h.closing.Done()
		g.close()
	}()
}

// find returns the module last loaded under a name.
func (h *Host) find(name string) (*generation, error) {
	for _, g := range slices.Backward(h.modules) {
		if g.name == name {
			return g, nil
		}
	}
	return nil, fmt.Errorf("plugins: no policy %q is loaded", name)
}

// Activate makes the module last loaded under that name decide from the next step on. The one that
// was active stays loaded, for Rollback.
func (h *Host) Activate(name string) (Swap, error) {
	return h.change(func() (*generation, error) { return h.find(name) })
}

// Rollback makes the module active again that was active before.
func (h *Host) Rollback() (Swap, error) {
	return h.change(func() (*generation, error) {
		if h.previous == nil {
			return nil, errors.New("plugins: there is no policy to go back to")
		}
		return h.previous, nil
	})
}

// stay is the swap that changes nothing, because the module is active, or there is none. To one
// that was set aside it gives another chance.
func (h *Host) stay(g *generation) Swap {
	swap := Swap{Number: h.swaps, Step: h.step}
	if g == nil {
		return swap
	}
	swap.From, swap.To = g.label, g.label
	if g.state == StateSetAside {
		g.breaker = breaker{}
		g.enter(StateActive)
	}
	return swap
}

// change makes the chosen module active between two steps: while the lock is held no step begins.
func (h *Host) change(choose func() (*generation, error)) (Swap, error) {
	h.mu.Lock()
	begin := time.Now()
	g, err := choose()
	if err == nil && g != h.active && (g.slots < h.loader.slots ||
		g.capacity < h.loader.decisions) {
		err = fmt.Errorf("plugins: policy %s was loaded for a queue that has grown since; load it "+
			"again", g.label)
	}
	if err != nil || g == h.active {
		defer h.mu.Unlock()
		return h.stay(g), err
	}
	old := h.active
	swap := Swap{To: g.label, Step: h.step}
	if old != nil {
		swap.From = old.label
		old.enter(StatePrevious)
	}
	if h.previous != nil && h.previous != g {
		h.previous.enter(StateReady)
	}
	h.active, h.previous, h.answered = g, old, nil
	h.swaps++
	swap.Number = h.swaps
	g.enter(StateActive)
	g.swapped, g.breaker = true, breaker{}
	state := handOver(old, g)
	swap.State = state.text()
	if g.current != nil {
		g.current.stale = true
	}
	swap.Pause = time.Since(begin)
	h.mu.Unlock()
	h.dropSuperseded()
	h.log.Info("policy active", "policy", swap.To, "before", swap.From, "step", swap.Step,
		"pause", swap.Pause, "state", swap.State)
	h.observer.Swapped(swap)
	return swap, nil
}

// dropSuperseded forgets every module that has a later one of its name and no place of its own.
func (h *Host) dropSuperseded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.names() {
		if last, err := h.find(name); err == nil {
			h.prune(name, last)
		}
	}
}

// names lists the names of the modules, each once.
func (h *Host) names() []string {
	var names []string
	for _, g := range h.modules {
		if !slices.Contains(names, g.name) {
			names = append(names, g.name)
		}
	}
	return names
}

// Unload forgets the modules of a name. The active one stays: activate another first.
func (h *Host) Unload(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(name); err != nil {
		return err
	}
	if h.active != nil && h.active.name == name {
		return fmt.Errorf("plugins: policy %q is active; activate another first", name)
	}
	if h.previous != nil && h.previous.name == name {
		h.previous = nil
	}
	h.prune(name, nil)
	return nil
}

// enter changes a module's state.
func (g *generation) enter(s State) { g.state, g.since = s, time.Now() }

// status is a module's line of List.
func (g *generation) status() Status {
	return Status{
		Name: g.name, Version: g.version, Generation: g.number, State: g.state, Since: g.since,
		Digest: g.digest, Calls: g.counts.calls, Faults: g.counts.faults, P99: g.counts.p99(),
		Memory: g.counts.memory, LastFault: g.counts.lastFault,
	}
}

// List returns all modules, in the order of loading.
func (h *Host) List() []Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Status
	for _, g := range h.modules {
		list = append(list, g.status())
	}
	return list
}

// Active returns the active module; false when there is none.
func (h *Host) Active() (Status, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active == nil {
		return Status{}, false
	}
	return h.active.status(), true
}
