package pol

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

const slots = 200

func byArrival(r *abi.Record) (Key, bool) {
	return Key{r.ArrivalNS, -int64(r.Priority), r.ID}, Prefills(r)
}

// naive sorts all that belongs into the order.
func naive(records []abi.Record) []uint32 {
	var all []uint32
	for slot := range records {
		if Prefills(&records[slot]) {
			all = append(all, uint32(slot))
		}
	}
	slices.SortFunc(all, func(a, b uint32) int {
		x, _ := byArrival(&records[a])
		y, _ := byArrival(&records[b])
		return x.Compare(y)
	})
	return all
}

// change gives a share of the records new values and lists them.
func change(r *rand.Rand, v *abi.View, id *uint64) {
	v.Changed = v.Changed[:0]
	percent := []int{0, 2, 10, 100}[r.IntN(4)]
	for slot := range v.Records {
		record := &v.Records[slot]
		changed := r.IntN(100) < percent
		if changed {
			if record.ID == 0 || r.IntN(2) == 0 {
				*id++
				record.ID = *id
			}
			record.ArrivalNS, record.Priority = int64(r.IntN(5)), int32(r.IntN(5))-2
			record.State = []uint32{0, 1, 1, 1, 3, 7}[r.IntN(6)]
			record.RemainingPrefill = uint32(r.IntN(4))
		}
		if changed || v.Header.Flags&abi.FlagResync != 0 && record.State != 0 {
			v.Changed = append(v.Changed, uint32(slot))
		}
	}
}

func TestOrderFollowsTheChangedList(t *testing.T) {
	const seed = 42
	r := rand.New(rand.NewPCG(seed, 0))
	order, id := NewOrder(slots), uint64(0)
	v := &abi.View{Records: make([]abi.Record, slots)}
	for step := range 5000 {
		v.Header.Flags = 0
		if step == 0 || r.IntN(100) == 0 {
			v.Header.Flags = abi.FlagResync
		}
		change(r, v, &id)
		if err := order.Update(v, byArrival); err != nil {
			t.Fatal(err)
		}
		if want := naive(v.Records); !slices.Equal(order.Slots(), want) {
			t.Fatalf("seed %d, step %d: %v, want %v", seed, step, order.Slots(), want)
		}
	}
	v.Changed = []uint32{slots}
	if err := order.Update(v, byArrival); err == nil {
		t.Error("a slot beyond the table is accepted")
	}
}

func TestTopKeepsTheFirst(t *testing.T) {
	const seed = 42
	r := rand.New(rand.NewPCG(seed, 0))
	top := NewTop(20)
	for round := range 500 {
		records := make([]abi.Record, slots)
		top.Clear()
		for slot := range records {
			records[slot] = abi.Record{
				ID: uint64(slot) + 1, ArrivalNS: int64(r.IntN(30)), RemainingPrefill: 1,
				State: uint32(min(r.IntN(4), 1)),
			}
			if key, ok := byArrival(&records[slot]); ok {
				top.Offer(key, uint32(slot))
			}
		}
		var got []uint32
		for _, e := range top.Sorted() {
			got = append(got, e.Slot)
		}
		want := naive(records)
		if want = want[:min(len(want), 20)]; !slices.Equal(got, want) {
			t.Fatalf("seed %d, round %d: %v, want %v", seed, round, got, want)
		}
	}
}

func TestChunks(t *testing.T) {
	cases := []struct{ budget, decodes, max, align, remaining, want uint32 }{
		{100, 0, 50, 0, 30, 30},
		{100, 0, 50, 0, 80, 50},
		{100, 80, 50, 0, 80, 20},
		{100, 100, 50, 0, 80, 0},
		{100, 200, 50, 0, 80, 0},
		{100, 0, 50, 16, 80, 48},
		{100, 0, 50, 16, 50, 50},
		{10, 0, 50, 16, 80, 0},
		{10, 0, 50, 16, 10, 10},
	}
	for _, c := range cases {
		chunks := ChunksOf(&abi.Header{
			TokenBudget: c.budget, DecodeTokens: c.decodes, ChunkMax: c.max, ChunkAlign: c.align,
		})
		before := chunks.Left
		if got := chunks.Take(c.remaining); got != c.want || chunks.Left != before-got {
			t.Errorf("%+v: %d, left %d", c, got, chunks.Left)
		}
	}
}

// probe is a policy that keeps what it was set to.
type probe struct {
	number  int64
	flag    bool
	waiting *Order
}

func newProbe(config *Config, slots int) (Policy, error) {
	return &probe{
		number: config.Int("number", 5, -10, 1_000_000_000_000_000_000),
		flag:   config.Bool("flag", true), waiting: NewOrder(slots),
	}, nil
}

func (p *probe) Decide(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
	if err := p.waiting.Update(v, byArrival); err != nil {
		return nil, err
	}
	chunks := ChunksOf(&v.Header)
	for _, slot := range p.waiting.Slots() {
		r := &v.Records[slot]
		tokens := chunks.Take(r.RemainingPrefill)
		if tokens == 0 {
			break
		}
		out = append(out, Run(slot, r, tokens))
	}
	return out, nil
}

func TestSettings(t *testing.T) {
	cases := []struct {
		text   string
		number int64
		flag   bool
		want   string // Part of the error; "" means none.
	}{
		{"", 5, true, ""},
		{"{}", 5, true, ""},
		{" { } ", 5, true, ""},
		{`{"number":7}`, 7, true, ""},
		{"{\n \"flag\" : false ,\t\"number\" : -10\r\n}", -10, false, ""},
		{`{"number":999999999999999999}`, 999999999999999999, true, ""},
		{`{"number":-11}`, 0, false, "number must be a whole number from -10 to"},
		{`{"number":1.5}`, 0, false, "number must be"},
		{`{"number":+1}`, 0, false, "number must be"},
		{`{"number":"7"}`, 0, false, "number must be"},
		{`{"number":9999999999999999999}`, 0, false, "number must be"},
		{`{"flag":1}`, 0, false, "flag must be true or false"},
		{`{"numbr":1}`, 0, false, "there is no setting numbr"},
		{`{"a":{"number":[1,"}\""]},"number":2}`, 0, false, "there is no setting a"},
		{`[]`, 0, false, "not a JSON object"},
		{`{"number":7`, 0, false, "not a JSON object"},
		{`{"number":}`, 0, false, "not a JSON object"},
		{`{"number" 7}`, 0, false, "not a JSON object"},
		{`{"number`, 0, false, "not a JSON object"},
		{`{"flag":true,}`, 0, false, "not a JSON object"},
		{`{,}`, 0, false, "not a JSON object"},
	}
	registration := Register("probe", "9", newProbe)
	for _, c := range cases {
		policy, err := registration.Start([]byte(c.text), 10)
		if c.want == "" {
			if err != nil || policy.(*probe).number != c.number || policy.(*probe).flag != c.flag {
				t.Errorf("%s: %+v, %v", c.text, policy, err)
			}
			continue
		}
		coded, ok := errors.AsType[*Error](err)
		if !ok || coded.Code != abi.CodeBadConfig || !strings.Contains(coded.Why, c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(`{"number":7,"flag":false}`)
	f.Add(`{"a":{"number":[1,"}\""]},"number":2}`)
	f.Fuzz(func(t *testing.T, text string) {
		members, ok := object(text)
		if ok && !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
			t.Errorf("%q is taken for an object: %q", text, members)
		}
	})
}

func TestDecideDoesNotAllocate(t *testing.T) {
	const seed = 42
	policy, err := Register("probe", "9", newProbe).Start(nil, slots)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	v := &abi.View{Records: make([]abi.Record, slots), Changed: make([]uint32, 0, slots)}
	v.Header = abi.Header{TokenBudget: 100, ChunkMax: 50, Flags: abi.FlagResync}
	out, id := make([]abi.Decision, 0, slots), uint64(0)
	allocs := testing.AllocsPerRun(200, func() {
		change(r, v, &id)
		if out, err = policy.Decide(v, out[:0]); err != nil {
			t.Fatal(err)
		}
		v.Header.Flags = 0
	})
	if allocs != 0 {
		t.Errorf("%v allocations a step", allocs)
	}
}
