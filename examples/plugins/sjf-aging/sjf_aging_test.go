// Package sjfaging tests the policy sjf-aging as engines run it: its order, its settings, and what
// it does to a queue of long and short prompts, compared with fcfs.
package sjfaging

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

const (
	slots  = 400
	most   = 64 // Decisions.
	second = int64(1e9)
)

// open loads a shipped module with settings and lets it decide.
func open(t *testing.T, name, settings string) (*plugins.Host, error) {
	module, err := os.ReadFile("../../../plugins/builtin/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	host, err := plugins.New(plugins.Options{Slots: slots, Decisions: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := plugins.Spec{Name: name, Wasm: module, Config: []byte(settings)}
	if _, err := host.Load(t.Context(), spec); err != nil {
		return nil, err
	}
	_, err = host.Activate(name)
	return host, err
}

// queue is an engine that only prefills, on a virtual clock: a step computes its budget's tokens
// and takes a hundredth of a second.
type queue struct {
	host *plugins.Host
	view abi.View
	free []uint32
	id   uint64
	// The wait of each request that is done, from arrival to the end of its prompt.
	short, long []int64
}

func (q *queue) arrive(prompt uint32) {
	if len(q.free) == 0 {
		q.view.Records = append(q.view.Records, abi.Record{})
		q.free = append(q.free, uint32(len(q.view.Records)-1))
	}
	slot := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	q.id++
	q.view.Records[slot] = abi.Record{
		ID: q.id, ArrivalNS: q.view.Header.NowNS, State: abi.StateLive, PromptTokens: prompt,
		RemainingPrefill: prompt,
	}
	q.view.Changed = append(q.view.Changed, slot)
}

// step lets the policy decide and computes what it said.
func (q *queue) step(t *testing.T) []abi.Decision {
	v := &q.view
	slices.Sort(v.Changed)
	v.Changed = slices.Compact(v.Changed)
	v.Header = abi.Header{
		Magic: abi.Magic, HeaderSize: abi.HeaderSize, RecordStride: abi.RecordSize,
		DecisionStride: abi.DecisionSize, Step: v.Header.Step + 1, NowNS: v.Header.NowNS,
		TokenBudget: 512, ChunkMax: 512, DecisionsCap: most,
		NSlots: uint32(len(v.Records)), NChanged: uint32(len(v.Changed)),
	}
	out, err := q.host.Decide(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.Changed = v.Changed[:0]
	v.Header.NowNS += second / 100
	for _, d := range out {
		r := &v.Records[d.Slot]
		r.RemainingPrefill -= d.Tokens
		v.Changed = append(v.Changed, d.Slot)
		if r.RemainingPrefill > 0 {
			continue
		}
		wait := v.Header.NowNS - r.ArrivalNS
		if r.PromptTokens < 1000 {
			q.short = append(q.short, wait)
		} else {
			q.long = append(q.long, wait)
		}
		*r = abi.Record{}
		q.free = append(q.free, d.Slot)
	}
	return out
}

func (q *queue) waiting() bool {
	return slices.ContainsFunc(q.view.Records, func(r abi.Record) bool { return r.State != 0 })
}

func TestShortestFirstAndWaitingCounts(t *testing.T) {
	host, err := open(t, "sjf-aging", `{"aging_tokens_per_s": 100}`)
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{host: host}
	q.arrive(700) // Slot 0, and after six seconds worth 100 of them.
	q.view.Header.NowNS = 6 * second
	q.arrive(200) // Slot 1: longer than what is left of slot 0's rank.
	q.arrive(90)  // Slot 2.
	q.arrive(200) // Slot 3: equal to slot 1, with a larger id.
	var order []uint32
	for q.waiting() {
		for _, d := range q.step(t) {
			if !slices.Contains(order, d.Slot) {
				order = append(order, d.Slot)
			}
		}
	}
	if want := []uint32{2, 0, 1, 3}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestSettings(t *testing.T) {
	for settings, want := range map[string]string{
		``:                                "",
		`{}`:                              "",
		`{"aging_tokens_per_s": 0}`:       "",
		`{"aging_tokens_per_s": 1000000}`: "",
		`{"aging_tokens_per_s": 1000001}`: "whole number from 0 to 1000000",
		`{"aging_tokens_per_s": -1}`:      "whole number from 0 to 1000000",
		`{"aging_tokens_per_s": "200"}`:   "whole number",
		`{"ageing_tokens_per_s": 200}`:    "there is no setting ageing_tokens_per_s",
	} {
		_, err := open(t, "sjf-aging", settings)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", settings, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}

// trace runs a queue of one long prompt to nine short ones, a little below what the engine can do,
// for a minute of virtual time, and then until all is done.
func trace(t *testing.T, name, settings string) *queue {
	host, err := open(t, name, settings)
	if err != nil {
		t.Fatal(err)
	}
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	q := &queue{host: host}
	for q.view.Header.NowNS < 60*second || q.waiting() {
		// A hundred steps a second, 51,200 tokens: 48,000 arrive.
		if q.view.Header.NowNS < 60*second && random.IntN(100) < 48 {
			prompt := uint32(100 + random.IntN(200))
			if random.IntN(10) == 0 {
				prompt = 8200
			}
			q.arrive(prompt)
		}
		q.step(t)
	}
	return q
}

func mean(waits []int64) float64 {
	sum := 0.0
	for _, w := range waits {
		sum += float64(w)
	}
	return sum / float64(len(waits)) / float64(second)
}

// TestEffectAndPrice: against fcfs the mean wait is less than half, the short prompts' a tenth; the
// long ones pay for it.
func TestEffectAndPrice(t *testing.T) {
	fcfs, sjf := trace(t, "fcfs", ""), trace(t, "sjf-aging", "")
	for _, q := range []struct {
		name string
		*queue
	}{{"fcfs", fcfs}, {"sjf-aging", sjf}} {
		t.Logf("%-9s mean wait %.3f s; short %.3f s, long %.3f s, longest %.3f s", q.name,
			mean(slices.Concat(q.short, q.long)), mean(q.short), mean(q.long),
			float64(slices.Max(q.long))/float64(second))
	}
	all := func(q *queue) float64 { return mean(slices.Concat(q.short, q.long)) }
	if all(sjf) > all(fcfs)/2 || mean(sjf.short) > mean(fcfs.short)/10 {
		t.Error("shortest first does not shorten the wait")
	}
	if mean(sjf.long) < mean(fcfs.long) {
		t.Error("somebody must pay")
	}
	if len(sjf.short) != len(fcfs.short) || len(sjf.long) != len(fcfs.long) {
		t.Error("the two did not serve the same requests")
	}
}

// TestNobodyWaitsForEver: with short prompts that alone would fill the engine, a long one still
// ends, because it ages; without ageing it does not.
func TestNobodyWaitsForEver(t *testing.T) {
	for settings, ends := range map[string]bool{
		`{"aging_tokens_per_s": 1000}`: true,
		`{"aging_tokens_per_s": 0}`:    false,
	} {
		host, err := open(t, "sjf-aging", settings)
		if err != nil {
			t.Fatal(err)
		}
		q := &queue{host: host}
		q.arrive(8200)
		for range 3000 { // Half a minute.
			q.arrive(256)
			q.arrive(256)
			if len(q.view.Records) == slots {
				break
			}
			q.step(t)
		}
		if (len(q.long) == 1) != ends {
			t.Errorf("%s: the long prompt was served: %v", settings, len(q.long) == 1)
		}
	}
}
