package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
)

// Change is one row of two results.
type Change struct {
	Name, Unit    string
	Before, After float64
	// BeforeSpread and AfterSpread are the standard deviations of their samples.
	BeforeSpread, AfterSpread float64
	// Ratio is how much better the second is: above 1 better, below 1 worse.
	Ratio float64
}

// Compare lists the rows that both results have, in the order of the second.
func Compare(before, after *Result) []Change {
	old := map[string]Row{}
	for _, r := range before.Rows {
		old[r.Name] = r
	}
	var list []Change
	for _, r := range after.Rows {
		o, ok := old[r.Name]
		if !ok || o.Unit != r.Unit {
			continue
		}
		c := Change{Name: r.Name, Unit: r.Unit, Before: o.Value, After: r.Value,
			BeforeSpread: o.Spread, AfterSpread: r.Spread}
		switch {
		case r.Lower && r.Value > 0:
			c.Ratio = o.Value / r.Value
		case !r.Lower && o.Value > 0:
			c.Ratio = r.Value / o.Value
		}
		list = append(list, c)
	}
	return list
}

// Differences are what two results were measured under that is not the same, in words: where there
// are some, a ratio compares more than two versions of the program.
func Differences(before, after *Result) (list []string) {
	differ := func(what, old, now string) {
		if old != now {
			list = append(list, fmt.Sprintf("%s: %s before, %s after", what,
				cmp.Or(old, "not said"), cmp.Or(now, "not said")))
		}
	}
	differ("what is measured", before.Kind, after.Kind)
	differ("processor", before.Machine.Processor, after.Machine.Processor)
	differ("threads", fmt.Sprint(before.Machine.Threads), fmt.Sprint(after.Machine.Threads))
	names := map[string]bool{}
	for _, r := range []*Result{before, after} {
		for name := range r.Settings {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		differ(name, before.Settings[name], after.Settings[name])
	}
	return list
}

// WriteChanges writes a table of them.
func WriteChanges(to io.Writer, list []Change) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUNIT\tBEFORE\tSPREAD\tAFTER\tSPREAD\tRATIO\t")
	for _, c := range list {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t± %.2f\t%.2f\t± %.2f\t%.3f\t%s\n", c.Name, c.Unit,
			c.Before, c.BeforeSpread, c.After, c.AfterSpread, c.Ratio, c.word())
	}
	return w.Flush()
}

// word judges a change. What is no larger than both spreads together is no change that two results
// can show.
func (c Change) word() string {
	switch {
	case c.Ratio == 0:
		return "–"
	case c.Ratio > 0.98 && c.Ratio < 1.02:
		return ""
	case math.Abs(c.After-c.Before) <= c.BeforeSpread+c.AfterSpread:
		return "within the spread"
	case c.Ratio > 1:
		return "better"
	}
	return "worse"
}

// Worst is the smallest ratio, and its row; false when nothing compares.
func Worst(list []Change) (Change, bool) {
	var worst Change
	found := false
	for _, c := range list {
		if c.Ratio > 0 && (!found || c.Ratio < worst.Ratio) {
			worst, found = c, true
		}
	}
	return worst, found
}

// Ratios divides two series round by round.
func Ratios(ours, theirs []float64) []float64 {
	var list []float64
	for i := range min(len(ours), len(theirs)) {
		list = append(list, ours[i]/theirs[i])
	}
	return list
}
