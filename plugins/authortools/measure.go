package authortools

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// Native is a policy in the engine's own language, to compare with.
type Native interface {
	Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error)
}

// MeasureOptions says what a module is measured with.
type MeasureOptions struct {
	Settings []byte
	Native   Native        // nil: no comparison
	Each     time.Duration // how long each row takes
}

// Measured is what measuring found.
type Measured struct {
	Rows                 []Row
	Compile, Instantiate time.Duration
	Memory               int64 // bytes, the most of all rows
}

// Row is one length of the queue.
type Row struct {
	Waiting, Changed int
	Resync           bool // the whole table is shown anew in each step
	P50, P99, Native time.Duration
	Fuel50, FuelMost int64
	Limit            int64
	Allocations      float64 // of the host, a step
}

// Ratio is the module's median against the native policy's.
func (r *Row) Ratio() float64 { return float64(r.P50) / float64(max(r.Native, 1)) }

// benchDecisions is the room of an answer.
const benchDecisions = 256

// Measure runs a module on queues of several lengths, step by step in turns with the native policy.
func Measure(ctx context.Context, wasm []byte, o MeasureOptions) (*Measured, error) {
	m := &Measured{}
	for _, row := range []Row{
		{Waiting: 10, Changed: 2}, {Waiting: 100, Changed: 16}, {Waiting: 1000, Changed: 64},
		{Waiting: 1000, Changed: 1000, Resync: true}, {Waiting: 10_000, Changed: 64},
	} {
		w, err := plugins.OpenWorkbench(ctx, plugins.Spec{Wasm: wasm, Config: o.Settings},
			plugins.WorkbenchOptions{Slots: row.Waiting, Decisions: benchDecisions})
		if err != nil {
			return nil, err
		}
		m.Compile, m.Instantiate = w.Compile, w.Instantiate
		memory, err := row.measure(ctx, w, o)
		w.Close()
		if err != nil {
			return nil, err
		}
		m.Memory = max(m.Memory, memory)
		m.Rows = append(m.Rows, row)
	}
	return m, nil
}

// leastSteps and mostSteps bound the steps of a row, whatever they take.
const (
	leastSteps = 30
	mostSteps  = 20_000
)

// measure fills a row.
func (r *Row) measure(
	ctx context.Context, w *plugins.Workbench, o MeasureOptions,
) (memory int64, err error) {
	q := newQueue(r.Waiting)
	walls := make([]time.Duration, 0, mostSteps)
	natives := make([]time.Duration, 0, mostSteps)
	fuels := make([]int64, 0, mostSteps)
	out := make([]abi.Decision, 0, benchDecisions)
	var before, after runtime.MemStats
	allocated := uint64(0)
	if out, _, err = w.Decide(q.next(r.Changed, true), out); err != nil {
		return 0, err // The first step shows the whole table: not what the row is about.
	}
	for begin := time.Now(); len(walls) < leastSteps ||
		time.Since(begin) < o.Each && len(walls) < mostSteps; {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		v := q.next(r.Changed, r.Resync)
		counted := len(walls) < leastSteps // Counting stops the world: not in every step.
		if counted {
			runtime.ReadMemStats(&before)
		}
		var spent plugins.Spent
		out, spent, err = w.Decide(v, out)
		if counted {
			runtime.ReadMemStats(&after)
			allocated += after.Mallocs - before.Mallocs
		}
		if err == nil {
			err = plugins.Judge(v, out)
		}
		if err != nil {
			return 0, err
		}
		walls, fuels = append(walls, spent.Wall), append(fuels, spent.Fuel)
		memory, r.Limit = spent.Memory, spent.Limit
		if o.Native != nil {
			begin := time.Now()
			if out, err = o.Native.Decide(v, out[:0]); err != nil {
				return 0, err
			}
			natives = append(natives, time.Since(begin))
		}
	}
	slices.Sort(walls)
	slices.Sort(natives)
	slices.Sort(fuels)
	r.P50, r.P99 = at(walls, 50), at(walls, 99)
	r.Fuel50, r.FuelMost = at(fuels, 50), at(fuels, 100)
	r.Native, r.Allocations = at(natives, 50), float64(allocated)/leastSteps
	return memory, nil
}

// at is a percentile of sorted values.
func at[T any](sorted []T, percent int) T {
	var none T
	if len(sorted) == 0 {
		return none
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// queue is a table of waiting requests, of which some change from step to step.
type queue struct {
	view   abi.View
	chance *rand.Rand
	ids    uint64
}

func newQueue(waiting int) *queue {
	q := &queue{chance: rand.New(rand.NewPCG(1, 2))}
	q.view.Header = usual()
	h := &q.view.Header
	h.NSlots, h.NWaiting, h.DecisionsCap = uint32(waiting), uint32(waiting), benchDecisions
	q.view.Records = make([]abi.Record, waiting)
	for slot := range q.view.Records {
		q.arrive(slot)
	}
	return q
}

func (q *queue) arrive(slot int) {
	q.ids++
	prompt := 1 + q.chance.Uint32N(4000)
	arrival := q.view.Header.NowNS - q.chance.Int64N(int64(time.Second))
	q.view.Records[slot] = abi.Record{ID: q.ids, ArrivalNS: arrival,
		State: abi.StateLive, PromptTokens: prompt, RemainingPrefill: prompt, MaxNew: 100,
		PagesNeeded: prompt/16 + 1}
}

// turnover is how many of the changed slots of a step hold other requests than before: as in an
// engine, most changes are progress of the same ones.
const turnover = 2

// progress is what a step changes of a request that stays.
func (q *queue) progress(slot int) {
	r := &q.view.Records[slot]
	r.ServiceTokens++
	r.LastSchedNS = q.view.Header.NowNS
	r.CachedTokens = q.chance.Uint32N(r.PromptTokens)
}

// next changes some slots and shows the table; on a resync all of them are other requests.
func (q *queue) next(changed int, resync bool) *abi.View {
	h := &q.view.Header
	h.Step++
	h.NowNS += int64(time.Millisecond)
	h.Flags = 0
	first := h.Step == 1
	if resync || first {
		h.Flags = abi.FlagResync
	}
	q.view.Changed = q.view.Changed[:0]
	slots := len(q.view.Records)
	for i := range changed {
		slot := i * slots / changed
		if resync || first || i < turnover {
			q.arrive(slot)
		} else {
			q.progress(slot)
		}
		if !first {
			q.view.Changed = append(q.view.Changed, uint32(slot))
		}
	}
	for slot := 0; first && slot < slots; slot++ {
		q.view.Changed = append(q.view.Changed, uint32(slot))
	}
	h.NChanged = uint32(len(q.view.Changed))
	return &q.view
}
