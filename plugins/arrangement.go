package plugins

import (
	"errors"
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Part is what a module decides.
type Part string

// The parts.
const (
	PartSelect Part = "select" // which requests run, in which order
	PartChunk  Part = "chunk"  // how long each chunk is
	PartWhole  Part = "whole"  // both, of a Spec
)

// arrangement is which modules decide. The zero value is none: the built-in policy decides.
type arrangement struct {
	order *generation // which requests run, in which order; and the chunk lengths if chunk is nil
	chunk *generation // how long each chunk is
}

// label names an arrangement: NAME@VERSION, or two of them with a plus between.
func (a arrangement) label() string {
	switch {
	case a.order == nil:
		return ""
	case a.chunk == nil:
		return a.order.label
	}
	return a.order.label + "+" + a.chunk.label
}

// holds says whether a module has a part in it.
func (a arrangement) holds(g *generation) bool { return g != nil && (a.order == g || a.chunk == g) }

// each calls f with every module of it.
func (a arrangement) each(f func(g *generation)) {
	for _, g := range []*generation{a.order, a.chunk} {
		if g != nil {
			f(g)
		}
	}
}

// sound says why an arrangement cannot decide.
func (a arrangement) sound() error {
	lacks := func(g *generation, flag uint32) bool { return g.about.Flags&flag == 0 }
	switch {
	case a.order == nil:
		return errors.New("plugins: no module selects; activate one first")
	case a.order == a.chunk:
		return fmt.Errorf("plugins: policy %s cannot be both parts at once: one copy of it decides",
			a.order.label)
	case lacks(a.order, abi.DescSelects):
		return fmt.Errorf("plugins: policy %s only sets chunk lengths (its descriptor lacks the "+
			"flag selects): use it as chunk, beside a policy that selects", a.order.label)
	case a.chunk == nil && lacks(a.order, abi.DescSetsChunks):
		return fmt.Errorf("plugins: policy %s only selects (its descriptor lacks the flag "+
			"sets_chunks): use it as select, beside a policy that sets chunk lengths",
			a.order.label)
	case a.chunk == nil:
		return nil
	case lacks(a.chunk, abi.DescSetsChunks):
		return fmt.Errorf("plugins: policy %s only selects (its descriptor lacks the flag "+
			"sets_chunks): it cannot be used as chunk", a.chunk.label)
	case a.chunk.cutless != nil:
		return fmt.Errorf("plugins: policy %s cannot be used as chunk: %s", a.chunk.label,
			a.chunk.cutless.Detail)
	}
	return nil
}

// fits says why an arrangement cannot be shown as many requests as there may be.
func (a arrangement) fits(l *loader) (err error) {
	a.each(func(g *generation) {
		if g.slots < l.slots || g.capacity < l.decisions {
			err = fmt.Errorf("plugins: policy %s was loaded for a queue that has grown since; "+
				"load it again", g.label)
		}
	})
	return err
}

// Activate makes the module last loaded under that name decide from the next step on, order and
// chunk lengths. What was active stays loaded, for Rollback.
func (h *Host) Activate(name string) (Swap, error) {
	return h.change(Activated, func() (arrangement, error) {
		g, err := h.find(name)
		return arrangement{order: g}, err
	})
}

// ActivatePart makes the module last loaded under that name decide one part from the next step on;
// what decides the other part stays. A module that decided both goes on with its order.
func (h *Host) ActivatePart(part Part, name string) (Swap, error) {
	return h.change(Activated, func() (arrangement, error) {
		g, err := h.find(name)
		if err != nil {
			return arrangement{}, err
		}
		return h.with(part, g)
	})
}

// with is what decides now, with a module in one part.
func (a arrangement) with(part Part, g *generation) (arrangement, error) {
	switch part {
	case PartSelect:
		a.order = g
	case PartChunk:
		a.chunk = g
	default:
		return a, fmt.Errorf("plugins: there is no part %q; there are %s and %s", part, PartSelect,
			PartChunk)
	}
	return a, nil
}

// could says why a module could not decide a part beside what decides now.
func (a arrangement) could(part Part, g *generation) error {
	if part == "" {
		return nil
	}
	to, err := arrangement{order: g}, error(nil)
	if part != PartWhole {
		to, err = a.with(part, g)
	}
	if err == nil {
		err = to.sound()
	}
	return err
}

// Compose makes one module decide the order and another the chunk lengths from the next step on.
func (h *Host) Compose(order, chunk string) (Swap, error) {
	return h.change(Activated, func() (arrangement, error) {
		first, err := h.find(order)
		if err != nil {
			return arrangement{}, err
		}
		second, err := h.find(chunk)
		return arrangement{first, second}, err
	})
}
