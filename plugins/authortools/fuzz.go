package authortools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/abi/fields"
	"github.com/kvrelay/engine/plugins"
)

// FuzzOptions says how long made-up tables are tried.
type FuzzOptions struct {
	Seed     uint64
	States   int           // steps to try
	Longest  time.Duration // and no longer than this
	Settings []byte
}

// Fuzzed is what fuzzing found.
type Fuzzed struct {
	States int
	Took   time.Duration
	Bad    *CounterExample // nil: nothing
}

// CounterExample is a sequence of steps whose last one is answered against the rules. Nothing can
// be
// left out of it.
type CounterExample struct {
	Why     string
	Records int      // in its last step
	Steps   []string // the last of them drawn for people
	Text    string   // the sequence as a [[case]] of a test file
}

// maxShrinks bounds how many smaller sequences are tried.
const maxShrinks = 4000

// Fuzz shows a module made-up sequences of tables and judges its answers by the rules of the ABI.
// The
// first that breaks one is shrunk. The error says that the module cannot be loaded.
func Fuzz(ctx context.Context, wasm []byte, o FuzzOptions) (*Fuzzed, error) {
	w, err := bench(ctx, wasm, o.Settings)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	begin := time.Now()
	f := &Fuzzed{}
	m := &maker{chance: rand.New(rand.NewPCG(o.Seed, 7))}
	for n := 0; f.States < o.States && time.Since(begin) < o.Longest && ctx.Err() == nil; n++ {
		sequence := m.sequence()
		f.States += len(sequence)
		err := tryOn(w, sequence, n)
		if err == nil {
			continue
		}
		if drawn, again := play(w, sequence); again == nil {
			f.Bad = &CounterExample{Why: "only after other tables: " + err.Error(),
				Records: live(sequence[len(sequence)-1].records), Steps: drawn,
				Text: asCase(sequence, err)}
			break
		}
		sequence = shrink(w, sequence, classOf(err))
		v, err := play(w, sequence)
		if err == nil {
			return nil, errors.New("the module answers the same tables differently: " +
				"a shrunk sequence passed the second time")
		}
		last := sequence[len(sequence)-1]
		f.Bad = &CounterExample{Why: err.Error(), Records: live(last.records),
			Steps: v, Text: asCase(sequence, err)}
		break
	}
	f.Took = time.Since(begin)
	return f, ctx.Err()
}

func live(records []abi.Record) int {
	n := 0
	for _, r := range records {
		if r.State != 0 {
			n++
		}
	}
	return n
}

// dear is how long a fresh copy may take to be made for every sequence.
const dear = time.Millisecond

// tryOn shows the n-th sequence: to a fresh copy, but where those are dear only now and then.
func tryOn(w *plugins.Workbench, sequence []*situation, n int) error {
	if n == 0 || w.Instantiate < dear || n%32 == 0 {
		_, err := play(w, sequence)
		return err
	}
	w.Again()
	_, err := show(w, sequence)
	return err
}

// play shows a sequence to a fresh copy and returns the first broken rule, with the step drawn.
func play(w *plugins.Workbench, sequence []*situation) ([]string, error) {
	if err := w.Fresh(); err != nil {
		return nil, err
	}
	return show(w, sequence)
}

// show shows a sequence to the copy that is there.
func show(w *plugins.Workbench, sequence []*situation) ([]string, error) {
	var before *situation
	for i, s := range sequence {
		here := &situation{header: s.header, records: slices.Clone(s.records)}
		v := here.show(before, uint64(i+1), testDecisions)
		out, _, err := w.Decide(v, nil)
		if err == nil {
			err = plugins.Judge(v, out)
		}
		if err != nil {
			return drawn(v, out), err
		}
		before = here
	}
	return nil, nil
}

// classOf is the kind of a failure: shrinking must not go from one to another.
func classOf(err error) string {
	var f *plugins.Fault
	if errors.As(err, &f) {
		return string(f.Class)
	}
	return "rule"
}

// maker makes tables of all kinds.
type maker struct {
	chance *rand.Rand
	ids    uint64
}

// pick is one of some numbers: the edges, and what lies between.
func (m *maker) pick(most uint32) uint32 {
	switch m.chance.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return most
	case 3:
		return most - min(most, 1)
	}
	return m.chance.Uint32N(max(most, 1))
}

// sequence is one to five steps.
func (m *maker) sequence() []*situation {
	steps := make([]*situation, 1+m.chance.IntN(5))
	slots := []int{0, 1, 2, 8, 40, 200}[m.chance.IntN(6)]
	now := int64(start)
	var records []abi.Record
	for i := range steps {
		records = slices.Clone(records)
		if len(records) < slots {
			records = append(records, make([]abi.Record, slots-len(records))...)
		}
		for slot := range records {
			switch n := m.chance.IntN(8); {
			case i == 0 && n < 6, n < 2:
				records[slot] = m.record(now)
			case n == 7:
				records[slot] = abi.Record{}
			}
		}
		steps[i] = &situation{header: m.header(now), records: records}
		now += int64(m.pick(2e9))
	}
	return steps
}

func (m *maker) header(now int64) abi.Header {
	h := usual()
	h.NowNS, h.Seed = now, m.chance.Uint64()
	h.TokenBudget, h.ChunkMax = m.pick(8192), m.pick(4096)
	h.ChunkAlign = []uint32{0, 1, 16, 128}[m.chance.IntN(4)]
	h.MaxSeqs, h.MaxAdmit = m.pick(64), m.pick(64)
	h.FreePages, h.ReservePages = m.pick(1<<16), m.pick(64)
	h.CostFixedUS, h.CostTokenNS = m.pick(5000), m.pick(100_000)
	return h
}

func (m *maker) record(now int64) abi.Record {
	m.ids++
	all := []uint32{abi.StateLive, abi.StateLive | abi.StateRunning,
		abi.StateLive | abi.StateRunning | abi.StateDecoding, abi.StateLive | abi.StatePreempted,
		abi.StateLive | abi.StateRunning | abi.StatePinned}
	r := abi.Record{ID: m.ids, State: all[m.chance.IntN(len(all))],
		ArrivalNS: now - int64(m.pick(4e9)), Priority: int32(m.pick(10)) - 5,
		Tenant: m.pick(4), PromptTokens: 1 + m.pick(100_000), MaxNew: 1 + m.pick(2000),
		Class: uint8(m.pick(2)), PredictedOutput: m.pick(1000), UserTag: uint64(m.pick(9))}
	if m.chance.IntN(4) == 0 {
		r.DeadlineNS = now + int64(m.pick(4e9)) - 2e9
	}
	r.RemainingPrefill = r.PromptTokens - min(r.PromptTokens-1, m.pick(r.PromptTokens))
	if r.State&abi.StateRunning != 0 {
		r.PagesHeld = (r.PromptTokens-r.RemainingPrefill)/16 + 1
	}
	if r.State&abi.StateDecoding != 0 {
		r.RemainingPrefill, r.Generated = 0, 1+m.pick(r.MaxNew)
	}
	r.PagesNeeded = r.RemainingPrefill/16 + 1
	return r
}

// shrink leaves out steps, then records, then what is not usual, as long as the failure stays.
func shrink(w *plugins.Workbench, sequence []*situation, class string) []*situation {
	tries := 0
	fails := func(s []*situation) bool {
		if len(s) == 0 || tries >= maxShrinks {
			return false
		}
		tries++
		_, err := play(w, s)
		return err != nil && classOf(err) == class
	}
	for again := true; again; {
		again = false
		for i := len(sequence) - 1; i >= 0; i-- {
			if less := slices.Delete(slices.Clone(sequence), i, i+1); fails(less) {
				sequence, again = less, true
			}
		}
		for i := range sequence {
			for _, change := range smaller(sequence[i]) {
				less := slices.Clone(sequence)
				less[i] = change(sequence[i])
				if less[i] != nil && fails(less) {
					sequence, again = less, true
				}
			}
		}
		again = again && tries < maxShrinks
	}
	return sequence
}

// smaller lists ways to make a situation simpler; nil says that it is so already.
func smaller(s *situation) []func(*situation) *situation {
	var list []func(*situation) *situation
	for size := len(s.records); size > 0; size /= 2 {
		for at := 0; at < len(s.records); at += size {
			list = append(list, func(s *situation) *situation { return s.without(at, size) })
		}
	}
	list = append(list, (*situation).trimmed)
	for slot := range s.records {
		for _, f := range fields.Of[abi.Record]() {
			if f.Name != "id" && f.Name != "state" {
				list = append(list, func(s *situation) *situation { return s.plainer(slot, f) })
			}
		}
	}
	plain := usual()
	for _, f := range fields.Of[abi.Header]() {
		list = append(list, func(s *situation) *situation {
			was, want := fields.Get(&s.header, f), fields.Get(&plain, f)
			if was == want || f.Name == "now_ns" {
				return nil
			}
			less := &situation{header: s.header, records: s.records}
			fields.Set(&less.header, f, int64(want))
			return less
		})
	}
	return list
}

// without frees some slots.
func (s *situation) without(at, size int) *situation {
	if at >= len(s.records) {
		return nil
	}
	part := s.records[at:min(at+size, len(s.records))]
	if live(part) == 0 {
		return nil
	}
	less := &situation{header: s.header, records: slices.Clone(s.records)}
	clear(less.records[at : at+len(part)])
	return less
}

// trimmed takes the free slots off the end.
func (s *situation) trimmed() *situation {
	n := len(s.records)
	for n > 0 && s.records[n-1].State == 0 {
		n--
	}
	if n == len(s.records) {
		return nil
	}
	return &situation{header: s.header, records: slices.Clone(s.records[:n])}
}

// plainer sets one field of a record to 0; what must not be 0 becomes 1.
func (s *situation) plainer(slot int, f fields.Field) *situation {
	if slot >= len(s.records) || s.records[slot].State == 0 {
		return nil
	}
	want := int64(0)
	r := s.records[slot]
	if f.Name == "prompt_tokens" || f.Name == "max_new" ||
		f.Name == "remaining_prefill" && r.State&abi.StateDecoding == 0 {
		want = 1
	}
	if int64(fields.Get(&r, f)) == want {
		return nil
	}
	less := &situation{header: s.header, records: slices.Clone(s.records)}
	fields.Set(&less.records[slot], f, want)
	return less
}

// telling are the fields that a case fills in by itself: they are written even if they are 0.
var telling = []string{
	"id", "arrival_ns", "prompt_tokens", "remaining_prefill", "max_new", "pages_held", "generated",
	"pages_needed",
}

// asCase writes a sequence as a case of a test file: no expectations but the rules.
func asCase(sequence []*situation, why error) string {
	var b strings.Builder
	reason, _, _ := strings.Cut(why.Error(), "\n")
	fmt.Fprintf(&b, "# Found by made-up tables: %s\n[[case]]\nname = \"found\"\n", reason)
	plain := usual()
	for i, s := range sequence {
		if i > 0 {
			fmt.Fprintf(&b, "\n[[case.then]]\n")
		}
		var set []string
		for _, f := range fields.Of[abi.Header]() {
			if got := fields.Get(&s.header, f); got != fields.Get(&plain, f) && int64(got) >= 0 {
				set = append(set, fmt.Sprintf("%s = %d", f.Name, got))
			}
		}
		fmt.Fprintf(&b, "header = { %s }\nrecords = [\n", strings.Join(set, ", "))
		for _, r := range s.records {
			var set []string
			for _, f := range fields.Of[abi.Record]() {
				got := fields.Get(&r, f)
				if r.State != 0 && (got != 0 || slices.Contains(telling, f.Name)) {
					set = append(set, fmt.Sprintf("%s = %d", f.Name, int64(got)))
				}
			}
			fmt.Fprintf(&b, "  { %s },\n", strings.Join(set, ", "))
		}
		b.WriteString("]\n")
	}
	return b.String()
}
