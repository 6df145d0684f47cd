package authortools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// Room of the tables that modules are tested with.
const (
	testSlots     = 256
	testDecisions = 64
)

// Verdict is what became of a case.
type Verdict struct {
	Name  string
	Where string // FILE:LINE:COLUMN of what failed; "" when all is well
	Why   string
	Table []string // the step and the answer, for people
}

// OK says whether the case passed.
func (v *Verdict) OK() bool { return v.Why == "" }

// RunCases runs cases against a module, each in a copy of its own.
func RunCases(ctx context.Context, wasm []byte, cases []*Case) ([]Verdict, error) {
	verdicts := make([]Verdict, 0, len(cases))
	open := map[string]*plugins.Workbench{}
	defer func() {
		for _, w := range open {
			w.Close()
		}
	}()
	for _, c := range cases {
		settings, err := c.settings()
		if err != nil {
			return nil, err
		}
		w := open[string(settings)]
		if w == nil {
			w, err = bench(ctx, wasm, settings)
			if err != nil {
				return nil, fmt.Errorf("with config %s: %w", settings, err)
			}
			open[string(settings)] = w
		}
		verdict, err := c.run(w)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts, nil
}

// bench loads a module as the tests need it.
func bench(ctx context.Context, wasm, settings []byte) (*plugins.Workbench, error) {
	return plugins.OpenWorkbench(ctx, plugins.Spec{Wasm: wasm, Config: settings},
		plugins.WorkbenchOptions{Slots: testSlots, Decisions: testDecisions})
}

// run decides the steps of a case.
func (c *Case) run(w *plugins.Workbench) (Verdict, error) {
	verdict := Verdict{Name: c.Name}
	if err := w.Fresh(); err != nil {
		return verdict, err
	}
	var before *situation
	now := int64(start)
	seen := map[string]int{} // expectations by key, to find their lines
	for i, step := range append([]Step{c.Step}, c.Then...) {
		after, err := step.after()
		if err != nil {
			return verdict, err
		}
		now += int64(after)
		here := &situation{header: usual()}
		here.header.NowNS = now
		if err := step.header(&here.header); err != nil {
			return verdict, err
		}
		if here.records, err = step.table(now); err != nil {
			return verdict, err
		}
		if here.tenants, here.peers, err = step.tables(); err != nil {
			return verdict, err
		}
		if len(here.records) > testSlots {
			return verdict, fmt.Errorf("case %s: at most %d records", c.Name, testSlots)
		}
		v := here.show(before, uint64(i+1), testDecisions)
		out, _, err := w.Decide(v, nil)
		if err == nil {
			err = plugins.Judge(v, out)
		}
		key, why := "name", ""
		if err != nil {
			why = err.Error()
		} else {
			key, why = step.compare(v, out)
		}
		if why != "" {
			verdict.Where, verdict.Why = c.where(key, seen[key]), why
			verdict.Table = drawn(v, out)
			return verdict, nil
		}
		step.count(seen)
		before = here
	}
	return verdict, nil
}

// count counts the step's expectations.
func (s *Step) count(seen map[string]int) {
	for key, is := range map[string]bool{"order": s.Order != nil, "plan": s.Plan != nil,
		"max_tokens": s.MaxTokens != nil, "never": s.Never != nil} {
		if is {
			seen[key]++
		}
	}
}

// compare holds an answer against what is expected: the key that fails, and why.
func (s *Step) compare(v *abi.View, out []abi.Decision) (key, why string) {
	var ran []uint64
	sum := uint64(0)
	for _, d := range out {
		r := &v.Records[d.Slot]
		if d.Action != abi.ActionRun {
			continue
		}
		ran = append(ran, r.ID)
		if r.State&abi.StateDecoding == 0 {
			sum += uint64(min(d.Tokens, r.RemainingPrefill, v.Header.ChunkMax))
		}
	}
	switch {
	case s.Order != nil && !slices.Equal(ran, *s.Order):
		return "order", fmt.Sprintf("expected the order %v, got %v", *s.Order, ran)
	case s.MaxTokens != nil && sum > *s.MaxTokens:
		return "max_tokens", fmt.Sprintf("expected sum of tokens ≤ %d, got %d", *s.MaxTokens, sum)
	}
	for _, id := range s.Never {
		if slices.Contains(ran, id) {
			return "never", fmt.Sprintf("request %d runs", id)
		}
	}
	if s.Plan != nil {
		return "plan", s.comparePlan(v, out)
	}
	return "", ""
}

func (s *Step) comparePlan(v *abi.View, out []abi.Decision) string {
	if len(out) != len(*s.Plan) {
		return fmt.Sprintf("expected %d decisions, got %d", len(*s.Plan), len(out))
	}
	for i, want := range *s.Plan {
		d := out[i]
		id, action := v.Records[d.Slot].ID, abi.ActionName(d.Action)
		if want.Action == "" {
			want.Action = abi.ActionName(abi.ActionRun)
		}
		switch {
		case id != want.ID || action != want.Action:
			return fmt.Sprintf("decision %d: expected %s %d, got %s %d", i+1, want.Action, want.ID,
				action, id)
		case want.Tokens != nil && d.Tokens != *want.Tokens:
			return fmt.Sprintf("decision %d, request %d: expected %d tokens, got %d", i+1, id,
				*want.Tokens, d.Tokens)
		}
	}
	return ""
}

// most is how many records a drawn table shows.
const most = 12

// drawn shows a step and its answer.
func drawn(v *abi.View, out []abi.Decision) []string {
	h := &v.Header
	lines := []string{fmt.Sprintf("step %d · token_budget %d · chunk_max %d · running %d", h.Step,
		h.TokenBudget, h.ChunkMax, h.NRunning),
		fmt.Sprintf("%4s %6s %10s %9s   %s", "slot", "id", "remaining", "age", "decision")}
	for slot, r := range v.Records {
		if r.State == 0 {
			continue
		}
		if len(lines) == most+2 {
			return append(lines, "…")
		}
		says := ""
		for i, d := range out {
			if int(d.Slot) == slot {
				says = strings.TrimSpace(fmt.Sprintf("%d. %s %d", i+1, abi.ActionName(d.Action),
					d.Tokens))
			}
		}
		age := float64(h.NowNS-r.ArrivalNS) / 1e9
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%4d %6d %10d %8.1fs   %s", slot, r.ID,
			r.RemainingPrefill, age, says), " "))
	}
	return lines
}
