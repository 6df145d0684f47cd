package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kvrelay/engine/host/bench"
)

// benchRounds is a measurement under way: each case once a round, and beside it the same case of
// something else, whose rate it is compared with. Which of the two goes first changes from round
// to round, so that neither always finds the machine as the other left it.
type benchRounds struct {
	cases   []bench.Case
	subject *bench.Subject
	repeat  int
	bar     *benchBar
	other   other
	ours    [][]float64 // by case
	others  [][]float64
	carried []float64 // of a transfer beside it, MB/s
	cost    float64   // the part of the processors that the transfer takes alone
}

// other is what the model's rates are compared with; the zero value is nothing.
type other struct {
	name   string // "peer"
	column string // of the table
	// measures says whether it has a case; rate measures it, and gives words for the round's line.
	measures func(c bench.Case) bool
	rate     func(ctx context.Context, c bench.Case, seed uint64) (float64, string, error)
	// ofOurs: the ratio is that of its rate to ours, not that of ours to its.
	ofOurs bool
}

func (o *other) has(c bench.Case) bool { return o.measures != nil && o.measures(c) }

// ratios are those of the rounds.
func (o *other) ratios(ours, others []float64) []float64 {
	if o.ofOurs {
		return bench.Ratios(others, ours)
	}
	return bench.Ratios(ours, others)
}

// run measures all rounds. A first, short run of each case does not count: it brings weights and
// pages into memory.
func (r *benchRounds) run(ctx context.Context) error {
	r.ours, r.others = make([][]float64, len(r.cases)), make([][]float64, len(r.cases))
	for _, c := range r.cases {
		short := bench.Case{Prompt: min(c.Prompt, 64), Generate: min(c.Generate, 2), Batch: c.Batch}
		if _, err := r.subject.Once(short, 1); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
	}
	for round := range r.repeat {
		for i := range r.cases {
			if err := r.once(ctx, round, i); err != nil {
				return fmt.Errorf("%v: %w", r.cases[i], err)
			}
			r.bar.set(round*len(r.cases) + i + 1)
		}
	}
	return nil
}

// once measures a case once, and beside it the other.
func (r *benchRounds) once(ctx context.Context, round, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, seed := r.cases[i], uint64(round)
	words := ""
	others := func() error {
		rate, more, err := r.other.rate(ctx, c, seed)
		r.others[i], words = append(r.others[i], rate), more
		return err
	}
	both, otherFirst := r.other.has(c), round%2 == 1
	if both && otherFirst {
		if err := others(); err != nil {
			return err
		}
	}
	rate, err := r.subject.Once(c, seed)
	if err != nil {
		return err
	}
	r.ours[i] = append(r.ours[i], rate)
	line := fmt.Sprintf("round %d/%d  %-16v %9.2f tok/s", round+1, r.repeat, c, rate)
	if both {
		if !otherFirst {
			if err := others(); err != nil {
				return err
			}
		}
		line += fmt.Sprintf("   %s %9.2f   ratio %.3f%s", r.other.name, r.others[i][round],
			r.other.ratios(r.ours[i], r.others[i])[round], words)
	}
	fmt.Fprintln(r.bar, line)
	return nil
}

// rows are the figures of all cases: ours, those of the other, and the ratios of the rounds.
func (r *benchRounds) rows() (list []bench.Row) {
	for i, c := range r.cases {
		list = append(list, c.Row(r.ours[i]))
		if r.others[i] == nil {
			continue
		}
		name := fmt.Sprintf("%v %s", c, r.other.name)
		rate := bench.RowOf(name, "tok/s", r.others[i])
		rate.Machine = !r.other.ofOurs
		list = append(list, rate, bench.RowOf(name+" ratio", "×",
			r.other.ratios(r.ours[i], r.others[i])))
	}
	if r.carried != nil {
		cost := bench.RowOf("transfer alone", "%", []float64{100 * r.cost})
		cost.Lower = true
		list = append(list, bench.RowOf("transfer", "MB/s", r.carried), cost)
	}
	return list
}

// table prints medians, and of another the ratios of the rounds.
func (r *benchRounds) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "TEST\tTOK/S\tSPREAD")
	if r.other.measures != nil {
		fmt.Fprintf(w, "\t%s\tRATIO\tLEAST\tMOST", r.other.column)
	}
	fmt.Fprintln(w)
	for i, c := range r.cases {
		row := c.Row(r.ours[i])
		fmt.Fprintf(w, "%s\t%.2f\t± %.2f", row.Name, row.Value, row.Spread)
		if r.others[i] != nil {
			ratios := r.other.ratios(r.ours[i], r.others[i])
			fmt.Fprintf(w, "\t%.2f\t%.3f\t%.3f\t%.3f", bench.Quantile(r.others[i], 0.5),
				bench.Quantile(ratios, 0.5), bench.Quantile(ratios, 0), bench.Quantile(ratios, 1))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
