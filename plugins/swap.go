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
	part := s.For
	s.For = "" // What decides is another question when it is loaded again.
	g, f := h.loader.load(ctx, s)
	if f != nil {
		h.log.Warn("policy refused", "policy", f.Policy, "class", string(f.Class), "call", f.Call,
			"detail", f.Detail)
		h.observer.Faulted(f)
		h.observer.Swapped(Swap{Result: Refused, To: f.Policy})
		return Status{}, f
	}
	status, err := h.keep(g, part)
	if err != nil {
		g.close()
		return Status{}, err
	}
	g.warm()
	h.log.Info("policy loaded", "policy", g.label, "digest", g.digest, "grown", g.stats.Growth())
	return status, nil
}

// Resize makes room for a longer queue and more decisions than Options named; it never takes room
// away. The modules that decide are loaded again for it. The others keep their tables, and are
// refused by Activate and Rollback until they are loaded again. On an error nothing has changed.
func (h *Host) Resize(ctx context.Context, slots, decisions int) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	before := h.loader
	slots, decisions = max(slots, before.slots), max(decisions, before.decisions)
	if slots == before.slots && decisions == before.decisions {
		return nil
	}
	old := h.size(slots, decisions)
	to, err := h.again(ctx, old)
	if err == nil && old.order != nil {
		_, err = h.change(Activated, func() (arrangement, error) { return to, nil })
	}
	if err != nil {
		h.size(before.slots, before.decisions)
	}
	return err
}

// again loads the modules of an arrangement anew.
func (h *Host) again(ctx context.Context, old arrangement) (arrangement, error) {
	var to arrangement
	for _, part := range []struct {
		from *generation
		to   **generation
	}{{old.order, &to.order}, {old.chunk, &to.chunk}} {
		if part.from == nil {
			continue
		}
		status, err := h.load(ctx, part.from.spec)
		if err != nil {
			return to, err
		}
		*part.to = h.loaded(status.Generation)
	}
	return to, nil
}

// size sets what modules are loaded for, and returns those that decide.
func (h *Host) size(slots, decisions int) arrangement {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loader.slots, h.loader.decisions = slots, decisions
	h.cuts = slices.Grow(h.cuts[:0], decisions)
	return h.arrangement
}

// keep puts a loaded module into the list, if it could decide a part.
func (h *Host) keep(g *generation, part Part) (Status, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return Status{}, errors.New("plugins: the host is closed")
	}
	if err := h.could(part, g); err != nil {
		return Status{}, err
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
	return h.status(g), nil
}

// prune forgets the modules of a name that are neither kept nor active nor previous.
func (h *Host) prune(name string, kept *generation) {
	h.modules = slices.DeleteFunc(h.modules, func(g *generation) bool {
		if g.name != name || g == kept || h.holds(g) || h.previous.holds(g) {
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

// change makes the chosen modules decide between two steps: while the lock is held no step begins.
// The spares that are being made for them are waited for before.
func (h *Host) change(result SwapResult, choose func() (arrangement, error)) (Swap, error) {
	h.mu.Lock()
	soon, err := choose()
	h.mu.Unlock()
	if err == nil {
		soon.each((*generation).await)
	}
	entry := soon.entry() // Made before, for what allocates may have to help the collector.
	h.mu.Lock()
	begin := time.Now()
	to, err := choose()
	if err == nil && to != h.arrangement {
		if err = to.sound(); err == nil {
			err = to.fits(&h.loader)
		}
	}
	if err != nil || to == h.arrangement {
		defer h.mu.Unlock()
		return h.stay(), err
	}
	if to != soon {
		entry = to.entry()
	}
	old := h.arrangement
	swap := Swap{Result: result, From: h.deciding, To: entry.Policy, Step: h.step}
	h.arrangement, h.previous, h.answered = to, old, nil
	h.swaps++
	swap.Number = h.swaps
	swap.State = h.takeOver(old.order, to.order)
	if state := h.takeOver(old.chunk, to.chunk); state != "" {
		swap.State += "; chunk lengths: " + state
	}
	h.place()
	h.remember(entry, swap)
	h.admit()
	swap.Pause = time.Since(begin)
	h.mu.Unlock()
	h.dropSuperseded()
	h.log.Info("policy active", "policy", swap.To, "before", swap.From, "step", swap.Step,
		"pause", swap.Pause, "state", swap.State, "number", swap.Number)
	h.observer.Swapped(swap)
	return swap, nil
}

// takeOver makes a module ready for its first step in a part, with the state of the one before. It
// says what became of that; "" when there was nothing to do.
func (h *Host) takeOver(from, to *generation) string {
	if to == nil || to == from {
		return ""
	}
	to.swapped, to.breaker, to.pace = true, breaker{}, pace{}
	state := handOver(from, to)
	if to.current != nil {
		to.current.stale = true
	}
	return state.text()
}

// stay is the swap that changes nothing, because the modules decide already, or there are none. To
// those that were set aside it gives another chance.
func (h *Host) stay() Swap {
	swap := Swap{Result: Activated, Number: h.swaps, Step: h.step, From: h.label(), To: h.label()}
	h.each(func(g *generation) { g.breaker = breaker{} })
	h.admit()
	return swap
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

// Unload forgets the modules of a name. Those that decide stay: activate others first.
func (h *Host) Unload(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.find(name); err != nil {
		return err
	}
	named := func(g *generation) bool { return g != nil && g.name == name }
	if named(h.order) || named(h.chunk) {
		return fmt.Errorf("plugins: policy %q is active; activate another first", name)
	}
	if named(h.previous.order) || named(h.previous.chunk) {
		h.previous = arrangement{}
	}
	h.prune(name, nil)
	h.place()
	h.log.Info("policy unloaded", "policy", name)
	return nil
}
