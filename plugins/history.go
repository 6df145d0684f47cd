package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Past is an entry of the history: which modules decided after a swap.
type Past struct {
	Number  uint64    `json:"number"` // of the swap
	Policy  string    `json:"policy"` // NAME@VERSION, or two of them with a plus between
	Digests []string  `json:"digests"`
	Since   time.Time `json:"since"`
	Step    uint64    `json:"step"` // the last one decided before

	modules []recalled // the order's, and the chunk lengths' if there is one
}

// recalled is a module of the past: enough to find it, or to load it again.
type recalled struct {
	number uint64
	spec   Spec
}

// entry is an arrangement as the history keeps it, without what only its swap knows.
func (a arrangement) entry() Past {
	entry := Past{Policy: a.label()}
	a.each(func(g *generation) {
		entry.Digests = append(entry.Digests, g.digest)
		entry.modules = append(entry.modules, recalled{g.number, g.spec})
	})
	return entry
}

// remember writes down which modules decide now.
func (h *Host) remember(entry Past, swap Swap) {
	entry.Number, entry.Step, entry.Since = swap.Number, swap.Step, time.Now()
	h.deciding = entry.Policy
	h.past = append(h.past, entry)
	h.trim()
}

// trim drops what is older than the rules keep: so many entries besides what decides now.
func (h *Host) trim() {
	if n := len(h.past) - 1 - h.rules.Keep; n > 0 {
		h.past = slices.Delete(h.past, 0, n)
	}
}

// History returns what decided when, the latest first.
func (h *Host) History() []Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.past)
	slices.Reverse(list)
	return list
}

// Rollback makes active again what was active before the latest swap.
func (h *Host) Rollback() (Swap, error) {
	return h.change(RolledBack, func() (arrangement, error) {
		if h.previous.order == nil {
			return arrangement{}, errors.New("plugins: there is no policy to go back to")
		}
		return h.previous, nil
	})
}

// RollbackTo makes active again what the swap of that number had made active. Modules that are not
// loaded any more are loaded again.
func (h *Host) RollbackTo(ctx context.Context, number uint64) (Swap, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	entry, err := h.entry(number)
	if err != nil {
		return Swap{}, err
	}
	var modules []*generation
	for _, r := range entry.modules {
		g := h.loaded(r.number)
		if g == nil {
			status, err := h.load(ctx, r.spec)
			if err != nil {
				return Swap{}, fmt.Errorf("plugins: going back to swap %d: %w", number, err)
			}
			g = h.loaded(status.Generation)
		}
		modules = append(modules, g)
	}
	return h.change(RolledBack, func() (arrangement, error) {
		to := arrangement{order: modules[0]}
		if len(modules) > 1 {
			to.chunk = modules[1]
		}
		for _, g := range modules {
			if !slices.Contains(h.modules, g) {
				return to, fmt.Errorf("plugins: policy %s was unloaded meanwhile", entry.Policy)
			}
		}
		return to, nil
	})
}

// entry finds an entry of the history.
func (h *Host) entry(number uint64) (Past, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.past, func(p Past) bool { return p.Number == number })
	if i < 0 {
		return Past{}, fmt.Errorf("plugins: the history has no swap %d", number)
	}
	return h.past[i], nil
}

// loaded finds a loaded module by its number; nil when it is gone, or too small by now.
func (h *Host) loaded(number uint64) *generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.modules {
		if g.number == number && (arrangement{order: g}).fits(&h.loader) == nil {
			return g
		}
	}
	return nil
}
