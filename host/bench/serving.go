package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Serving is one round of a comparison: the model's bare loop, and the same sequences through a
// whole engine.
type Serving struct {
	Bare, Served float64 // tokens a second
	// Window is how long Served was measured.
	Window time.Duration
	// Generator is the part of the machine's processors that the load generator used.
	Generator float64
	// Beside is Served while keys and values are carried beside it, Carried bytes a second; 0 where
	// none are.
	Beside, Carried float64
	// Stages are the parts of the loop's time in its stages, by their names.
	Stages map[string]float64
}

// Ratio is which part of the bare loop's rate is served.
func (s Serving) Ratio() float64 { return s.Served / s.Bare }

// stageNames are the stages in their order, and what people call them.
var stageNames = []struct{ name, title string }{
	{"hear", "hear: what was asked for"}, {"plan", "plan: policy and scheduler"},
	{"run", "run: the model"}, {"commit", "commit: sampling and bookkeeping"},
	{"deliver", "deliver: tokens to the streams"},
}

// StageShares are the parts of the time between two readings of a server's series.
func StageShares(before, after map[string]float64) map[string]float64 {
	spent, total := map[string]float64{}, 0.0
	for _, s := range stageNames {
		label := fmt.Sprintf("stage=%q", s.name)
		spent[s.name] = 0
		for series, seconds := range after {
			if strings.HasPrefix(series, "engine_step_seconds_sum{") &&
				strings.Contains(series, label) {
				spent[s.name] += seconds - before[series]
			}
		}
		total += spent[s.name]
	}
	for name := range spent {
		spent[name] /= max(total, 1e-9)
	}
	return spent
}

// ServingRows are the figures of all rounds.
func ServingRows(rounds []Serving) []Row {
	pick := func(of func(Serving) float64) (list []float64) {
		for _, s := range rounds {
			list = append(list, of(s))
		}
		return list
	}
	generator := RowOf("load generator", "%", pick(func(s Serving) float64 {
		return 100 * s.Generator
	}))
	generator.Lower = true
	rows := []Row{RowOf("bare loop", "tok/s", pick(func(s Serving) float64 { return s.Bare })),
		RowOf("served", "tok/s", pick(func(s Serving) float64 { return s.Served })),
		RowOf("served of bare", "%", pick(func(s Serving) float64 { return 100 * s.Ratio() })),
		generator}
	if len(rounds) > 0 && rounds[0].Beside > 0 {
		rows = append(rows, RowOf("served beside a transfer", "tok/s",
			pick(func(s Serving) float64 { return s.Beside })),
			RowOf("beside a transfer, of served", "%",
				pick(func(s Serving) float64 { return 100 * s.Beside / s.Served })),
			RowOf("transfer", "MB/s", pick(func(s Serving) float64 { return s.Carried / 1e6 })))
	}
	for _, stage := range stageNames {
		r := RowOf(stage.title, "%", pick(func(s Serving) float64 {
			return 100 * s.Stages[stage.name]
		}))
		r.Lower = stage.name != "run"
		rows = append(rows, r)
	}
	return rows
}

// WriteServing writes a table of them: median, least and most of the rounds.
func WriteServing(to io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUNIT\tMEDIAN\tLEAST\tMOST")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\n", r.Name, r.Unit, r.Value,
			Quantile(r.Samples, 0), Quantile(r.Samples, 1))
	}
	return w.Flush()
}
