package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// Replayed is what came of deciding a saved step again.
type Replayed struct {
	// Exact is whether the module is the one that faulted, and was brought to where it was. Another
	// one is shown the last step alone, as after a swap.
	Exact  bool           `json:"exact"`
	Steps  int            `json:"steps"` // that were decided, the faulting one last
	Fault  *Fault         `json:"fault"` // nil: the step is sound now
	Answer []abi.Decision `json:"-"`
	// At is the place in the module's source where it trapped, FILE:LINE (FUNCTION); without line
	// numbers the function or the place in the file. "" when it did not trap.
	At string `json:"at"`
	// Same says that an exact replay came to the same end: class, code, words, step, fuel and
	// answer.
	Same bool `json:"same"`
}

// Replay decides a saved step again, compiled and in the same sandbox as in an engine.
func Replay(ctx context.Context, wasm []byte, in *Input) (*Replayed, error) {
	r, err := play(ctx, wasm, in, false)
	if err != nil {
		return nil, err
	}
	if r.Fault != nil && r.Exact {
		// The place needs a run of its own, in which the module says where it is.
		if traced, err := play(ctx, wasm, in, true); err == nil {
			r.At = traced.At
		}
	}
	return r, nil
}

// play is one run; a traced one is interpreted and finds the place of a trap.
func play(ctx context.Context, wasm []byte, in *Input, traced bool) (*Replayed, error) {
	l := loader{slots: in.Slots, decisions: in.Decisions, offered: in.Offered,
		log: slog.New(slog.DiscardHandler), drop: func(string, int) {}, interpreter: traced,
		traced: traced}
	g := l.prepare(Spec{Name: in.Policy, Wasm: wasm, Config: in.Config, Limits: Limits{
		MemoryPages: in.MemoryPages, InitFuel: in.InitFuel, Fuel: in.Fuel}})
	defer g.close()
	g.calibrated, g.label = in.Calibrated, in.Policy
	g.lines.pin(in.Level)
	if f := g.check(wasm); f != nil {
		return nil, f
	}
	if f := g.build(ctx, &l); f != nil {
		return nil, f
	}
	s, f := g.newSandbox()
	if f != nil {
		return nil, f
	}
	defer s.close()
	sum := sha256.Sum256(wasm)
	p := player{in: in, s: s, table: make([]abi.Record, in.Slots)}
	p.exact = hex.EncodeToString(sum[:]) == in.Digest && !in.Lost
	return p.run()
}

// player runs the entries of a journal.
type player struct {
	in    *Input
	s     *sandbox
	exact bool
	table []abi.Record
}

func (p *player) run() (*Replayed, error) {
	g := p.s.g
	g.label = p.in.Policy
	if p.in.base != nil {
		if err := p.fill(); err != nil {
			return nil, err
		}
		if p.exact {
			if err := p.s.restore(p.in.base); err != nil {
				return nil, err
			}
		}
	}
	done := &Replayed{Exact: p.exact}
	r := entryReader{data: p.in.entries, in: p.in}
	for len(r.data) > 0 {
		e, err := r.next()
		if err != nil {
			return nil, err // Cannot be: it was read before.
		}
		v := p.show(e)
		last := len(r.data) == 0
		switch {
		case e.kind == entryStep && (p.exact || last):
			if err := p.step(e, v, last, done); err != nil {
				return nil, err
			}
		case e.kind == entryLoad && p.exact:
			p.s.load(&e.state)
		case e.kind == entrySave && p.exact:
			_, _ = p.s.save()
		}
	}
	return done, nil
}

// fill takes the record table from the memory of the checkpoint.
func (p *player) fill() error {
	r := p.in.base.Regions
	if len(r) <= abi.BufferRecords {
		return errRestore
	}
	at, size := uint64(r[abi.BufferRecords].At), len(p.table)*abi.RecordSize
	if at+uint64(size) > uint64(len(p.in.base.memory)) {
		return errRestore
	}
	for slot := range p.table {
		record := p.in.base.memory[int(at)+slot*abi.RecordSize:]
		if err := p.table[slot].Decode(record); err != nil {
			return errRestore
		}
	}
	return nil
}

// show brings the table up to an entry and makes the view of it.
func (p *player) show(e entry) *abi.View {
	for i, slot := range e.view.Changed {
		p.table[slot] = e.view.Records[i]
	}
	v := e.view
	v.Records = p.table[:v.Header.NSlots]
	return &v
}

// step decides one step.
func (p *player) step(e entry, v *abi.View, last bool, done *Replayed) error {
	p.s.g.lines.pin(e.level)
	if !p.exact {
		p.s.g.swapped = true
	}
	out, a, err := p.s.step(v, nil)
	if err != nil {
		return fmt.Errorf("plugins: the saved step does not fit this module: %w", err)
	}
	done.Steps++
	if !last {
		if a.fault != nil && !a.keep {
			return fmt.Errorf("plugins: a step before the saved one faults: %w", a.fault)
		}
		return nil
	}
	done.Answer = out
	f := a.fault
	if f == nil {
		f = p.judge(v, out)
	}
	if f != nil {
		f.Step, f.Fuel, f.Limit = v.Header.Step, a.spent(), a.limit
		done.Fault, done.At = f, p.s.position()
	}
	done.Same = p.exact && p.same(f, out)
	return nil
}

// judge judges an answer as the host did, or as a scheduler reported: its own reasons are believed
// when the answer is the same.
func (p *player) judge(v *abi.View, out []abi.Decision) *Fault {
	var j abi.Judge
	var err error
	switch {
	case p.in.Cuts && len(v.Preset) > 0:
		err = judgeCut(&j, v, out)
	case !p.in.Cuts:
		err = j.Check(v, out, p.s.granted)
	}
	if err != nil {
		return p.s.g.fault(abi.FaultBadOutput, exportDecide, "%v", err)
	}
	want, _ := p.in.answer()
	if p.exact && p.in.Fault.Class == abi.FaultBadOutput && slices.Equal(out, want) {
		return p.s.g.fault(abi.FaultBadOutput, exportDecide, "%s", p.in.Fault.Detail)
	}
	return nil
}

// same says whether a fault is the one that was saved.
func (p *player) same(f *Fault, out []abi.Decision) bool {
	want := p.in.Fault
	answer, _ := p.in.answer()
	return f != nil && f.Class == want.Class && f.Call == want.Call && f.Step == want.Step &&
		f.Code == want.Code && f.Fuel == want.Fuel && f.Limit == want.Limit &&
		f.Detail == want.Detail && (f.Class != abi.FaultBadOutput || slices.Equal(out, answer))
}
