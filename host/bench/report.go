package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// tableWidth is that of the table of vLLM's own serving benchmark, whose labels scripts look for.
const tableWidth = 50

// percentiles are the ones shown.
var percentiles = []float64{0.5, 0.9, 0.99}

// metrics are the distributions of a load in the order of the table.
func (l *Load) metrics() []struct {
	name, title string
	samples     []float64
} {
	return []struct {
		name, title string
		samples     []float64
	}{
		{"TTFT", "Time to First Token", l.TTFT},
		{"TPOT", "Time per Output Token (excl. 1st token)", l.TPOT},
		{"ITL", "Inter-token Latency", l.ITL},
		{"E2EL", "End-to-end Latency", l.E2E},
	}
}

// Rows are the figures by which two results compare.
func (l *Load) Rows() []Row {
	s := l.Elapsed.Seconds()
	rows := []Row{
		{Name: "Request throughput", Unit: "req/s", Value: float64(l.Succeeded) / s},
		{Name: "Output token throughput", Unit: "tok/s", Value: float64(l.OutTokens) / s},
		{Name: "Total token throughput", Unit: "tok/s",
			Value: float64(l.InTokens+l.OutTokens) / s},
		{Name: "Goodput", Unit: "req/s", Value: float64(l.Good) / s},
		{Name: "Failed requests", Unit: "", Value: float64(l.Failed), Lower: true},
	}
	if l.Steady > 0 {
		rows = append(rows, Row{Name: "Steady output throughput", Unit: "tok/s", Value: l.Steady})
	}
	for _, m := range l.metrics() {
		if len(m.samples) == 0 {
			continue
		}
		rows = append(rows, Row{Name: "Mean " + m.name, Unit: "ms", Value: Mean(m.samples),
			Lower: true})
		for _, p := range percentiles {
			rows = append(rows, Row{Name: percentileName(p) + " " + m.name, Unit: "ms",
				Value: Quantile(m.samples, p), Lower: true})
		}
	}
	return rows
}

func percentileName(p float64) string {
	if p == 0.5 {
		return "Median"
	}
	return fmt.Sprintf("P%.0f", 100*p)
}

// WriteTable writes the load as vLLM's serving benchmark does.
func (l *Load) WriteTable(to io.Writer) error {
	t := &table{to: to}
	t.rule("=", "Serving Benchmark Result")
	t.whole("Successful requests:", l.Succeeded)
	t.whole("Failed requests:", l.Failed)
	if l.HungUp > 0 {
		t.whole("Cancelled requests:", l.HungUp)
	}
	if l.Plan.Streams > 0 {
		t.whole("Maximum request concurrency:", l.Plan.Streams)
	}
	if l.Plan.Rate > 0 {
		t.number("Request rate configured (RPS):", l.Plan.Rate)
	}
	t.number("Benchmark duration (s):", l.Elapsed.Seconds())
	t.whole("Total input tokens:", l.InTokens)
	t.whole("Total generated tokens:", l.OutTokens)
	for _, r := range l.Rows() {
		if strings.HasSuffix(r.Unit, "/s") {
			t.number(fmt.Sprintf("%s (%s):", r.Name, r.Unit), r.Value)
		}
	}
	for _, m := range l.metrics() {
		if len(m.samples) == 0 {
			continue
		}
		t.rule("-", m.title)
		t.number("Mean "+m.name+" (ms):", Mean(m.samples))
		for _, p := range percentiles {
			t.number(percentileName(p)+" "+m.name+" (ms):", Quantile(m.samples, p))
		}
	}
	t.rule("=", "")
	return t.err
}

// table writes lines; the first error stays.
type table struct {
	to  io.Writer
	err error
}

func (t *table) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.to, format+"\n", args...)
	}
}

// rule is a line of a character around a title.
func (t *table) rule(char, title string) {
	if title != "" {
		title = " " + title + " "
	}
	left := (tableWidth - len(title)) / 2
	t.line("%s%s%s", strings.Repeat(char, left), title,
		strings.Repeat(char, tableWidth-left-len(title)))
}

func (t *table) whole(label string, n int)      { t.line("%-40s %-9d", label, n) }
func (t *table) number(label string, x float64) { t.line("%-40s %-9.2f", label, x) }

// Warmup is what a load test does before it: so many requests one after another, whose outcome does
// not count.
func Warmup(s int, in, out int) Plan {
	return Plan{Streams: 1, Requests: s, In: in, Out: out, Duration: time.Hour}
}
