package plugins

import (
	"context"
	"log/slog"
	"time"

	"github.com/kvrelay/engine/abi"
)

// Workbench is one module outside of a host, for those who try it: same lint, meter, limits and
// sandbox as in production, without spares, breaker and probation. It compiles in this process and
// belongs to one goroutine.
type Workbench struct {
	g           *generation
	s           *sandbox
	Compile     time.Duration // what lint, meter and compiler took
	Instantiate time.Duration // what the latest Fresh took
}

// WorkbenchOptions says what a Workbench has room for.
type WorkbenchOptions struct {
	Slots     int // of the record table
	Decisions int // in an answer
	Log       *slog.Logger
}

// Spent is what a call took.
type Spent struct {
	Wall        time.Duration
	Fuel, Limit int64
	Memory      int64 // bytes of the guest's memory after it
}

// OpenWorkbench loads a module. The error is a *Fault: what would keep a host from loading it.
func OpenWorkbench(ctx context.Context, s Spec, o WorkbenchOptions) (*Workbench, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := loader{slots: o.Slots, decisions: o.Decisions, log: o.Log, drop: func(string, int) {}}
	w := &Workbench{g: l.prepare(s)}
	begin := time.Now()
	if f := w.g.check(s.Wasm); f != nil {
		return nil, f
	}
	if f := w.g.build(ctx, &l); f != nil {
		w.Close()
		return nil, f
	}
	w.Compile = time.Since(begin)
	if err := w.Fresh(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Fresh begins with a new copy of the module, which has seen nothing.
func (w *Workbench) Fresh() error {
	if w.s != nil {
		w.s.close()
		w.s = nil
	}
	begin := time.Now()
	s, f := w.g.newSandbox()
	if f != nil {
		return f
	}
	w.s, w.g.swapped, w.Instantiate = s, true, time.Since(begin)
	return nil
}

// Again goes on with the same copy, which is shown the whole table anew: what an engine does when
// it
// suspects its own bookkeeping. It is cheap where a language's runtime makes Fresh dear.
func (w *Workbench) Again() { w.s.stale = true }

// Decide lets the module decide one step, as Host.Decide would. After a fault only Fresh helps.
func (w *Workbench) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, Spent, error) {
	begin := time.Now()
	out, a, err := w.s.step(v, out[:0])
	spent := Spent{time.Since(begin), a.fuel, a.limit, a.memory}
	if err == nil && a.fault != nil {
		err = a.fault
	}
	return out, spent, err
}

// About is the module's descriptor, with name and version as text.
func (w *Workbench) About() (d abi.Descriptor, name, version string) {
	d = w.g.about
	return d, w.s.text(d.NamePtr, min(d.NameLen, maxLabel)),
		w.s.text(d.VersionPtr, min(d.VersionLen, maxLabel))
}

// Growth is by how much metering made the module larger, 0.18 for 18 %.
func (w *Workbench) Growth() float64 { return w.g.stats.Growth() }

// Close frees everything.
func (w *Workbench) Close() {
	if w.s != nil {
		w.s.close()
		w.s = nil
	}
	w.g.close()
}
