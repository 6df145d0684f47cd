package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Gate compares two programs by results that were measured in turns, round by round: what disturbs
// the machine disturbs both, and a ratio is of neighbours in time.
type Gate struct {
	names []string // in the order of the first round
	rows  map[string]*gateRow
}

// gateRow is a figure of both.
type gateRow struct {
	Row
	ratios []float64  // one a round, above 1 where the second is better
	best   [2]float64 // of all samples, of each
}

// Add takes a round. Rows that only one of the results has are left out.
func (g *Gate) Add(before, after *Result) {
	if g.rows == nil {
		g.rows = map[string]*gateRow{}
	}
	changes := map[string]Change{}
	for _, c := range Compare(before, after) {
		if c.Ratio > 0 {
			changes[c.Name] = c
		}
	}
	for which, result := range []*Result{before, after} {
		for _, r := range result.Rows {
			c, ok := changes[r.Name]
			if !ok {
				continue
			}
			row := g.rows[r.Name]
			if row == nil {
				row = &gateRow{}
				g.names, g.rows[r.Name] = append(g.names, r.Name), row
			}
			if which == 1 {
				row.Row, row.ratios = r, append(row.ratios, c.Ratio)
			}
			for _, x := range append([]float64{r.Value}, r.Samples...) {
				if best := &row.best[which]; *best == 0 || r.Lower != (x > *best) {
					*best = x
				}
			}
		}
	}
}

// Worse are the figures that are below least of what they were in the median of the rounds and in
// the best sample of all, too: what disturbs a program makes it slower, never faster, so that the
// best ones differ only where the programs do. What only tells of the machine is no figure of the
// program.
func (g *Gate) Worse(least float64) (names []string) {
	for _, name := range g.names {
		row := g.rows[name]
		if !row.Machine && Quantile(row.ratios, 0.5) < least && row.ofBest() < least {
			names = append(names, name)
		}
	}
	return names
}

// ofBest is the ratio of the best samples.
func (r *gateRow) ofBest() float64 {
	if r.Lower {
		return r.best[0] / r.best[1]
	}
	return r.best[1] / r.best[0]
}

// Rounds is how many were added to the row that has the most.
func (g *Gate) Rounds() (most int) {
	for _, row := range g.rows {
		most = max(most, len(row.ratios))
	}
	return most
}

// Write writes a table of the ratios: above 1 better, below 1 worse.
func (g *Gate) Write(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUNIT\tRATIO\tLEAST\tMOST\tOF BEST")
	for _, name := range g.names {
		row := g.rows[name]
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\n", name, row.Unit,
			Quantile(row.ratios, 0.5), Quantile(row.ratios, 0), Quantile(row.ratios, 1),
			row.ofBest())
	}
	return w.Flush()
}
