package bench

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// plot is one curve chart of a page.
type plot struct {
	Title, X, Y string
	Points      string // of an SVG polyline
	Ticks       []tick
	Lines       []tick
}

// tick is a label at a place of an axis.
type tick struct {
	At   float64
	Text string
}

// The drawing area of a plot, in its own units.
const (
	plotWidth, plotHeight = 560.0, 200.0
	maxPlotPoints         = 400
)

// draw scales a curve of y over x, both from 0.
func draw(title, xWord, yWord string, x, y []float64) plot {
	p := plot{Title: title, X: xWord, Y: yWord}
	mostX, mostY := slices.Max(x), slices.Max(y)
	if mostX <= 0 || mostY <= 0 {
		return p
	}
	stepX, stepY := step(mostX), step(mostY)
	mostX, mostY = stepX*math.Ceil(mostX/stepX), stepY*math.Ceil(mostY/stepY)
	var points strings.Builder
	for i := range x {
		fmt.Fprintf(&points, "%.1f,%.1f ", x[i]/mostX*plotWidth, plotHeight-y[i]/mostY*plotHeight)
	}
	p.Points = points.String()
	for v := 0.0; v <= mostX*1.001; v += stepX {
		p.Ticks = append(p.Ticks, tick{v / mostX * plotWidth, fmt.Sprintf("%g", v)})
	}
	for v := 0.0; v <= mostY*1.001; v += stepY {
		p.Lines = append(p.Lines, tick{plotHeight - v/mostY*plotHeight, fmt.Sprintf("%g", v)})
	}
	return p
}

// step is a round number of which about five reach most.
func step(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, f := range []float64{1, 2, 5} {
		if most/(f*unit) <= 6 {
			return f * unit
		}
	}
	return 10 * unit
}

// distribution draws which share of the samples lies below each value.
func distribution(title string, samples []float64) plot {
	sorted := slices.Sorted(slices.Values(samples))
	var x, y []float64
	for i := range min(len(sorted), maxPlotPoints) + 1 {
		share := float64(i) / float64(min(len(sorted), maxPlotPoints))
		x, y = append(x, Quantile(sorted, share)), append(y, 100*share)
	}
	return draw(title, "ms", "% of them", x, y)
}

// bars draws values one beside another, each a step of the curve.
func bars(title, yWord string, values []float64) plot {
	var x, y []float64
	for i, v := range values {
		x, y = append(x, float64(i), float64(i+1)), append(y, v, v)
	}
	return draw(title, "s", yWord, x, y)
}

// WritePage writes a result as one HTML file that needs nothing beside itself.
func (r *Result) WritePage(to io.Writer) error {
	var plots []plot
	if l := r.Load; l != nil {
		for _, m := range l.metrics() {
			if len(m.samples) > 1 {
				plots = append(plots, distribution(m.title, m.samples))
			}
		}
		if len(l.Second) > 1 {
			plots = append(plots, bars("Output tokens by second", "tok/s", l.Second))
		}
	}
	shares := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Share > 0 })
	return page.Execute(to, struct {
		*Result
		Plots  []plot
		Charts []*chart
		Shares bool
	}{r, plots, r.charts(), shares})
}

// percent words a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

var pageWords = template.FuncMap{"percent": percent}

var page = template.Must(template.New("page").Funcs(pageWords).Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>engine bench: {{.Subject}}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;text-align:right;
border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
svg{width:100%;height:auto}figure{margin:2rem 0}figcaption{font-weight:600}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{border-color:#333}}
</style></head><body>
<h1>{{.Subject}}</h1>
<p>{{.Kind}} · {{.When.Format "2006-01-02 15:04 MST"}} · {{.Machine.Processor}} ·
{{.Machine.Threads}} threads{{with .Machine.Device}} · {{.}}{{end}} ·
load {{printf "%.1f" .Machine.LoadAtRun}}
{{- range $name, $value := .Settings}} · {{$name}} {{$value}}{{end}}</p>
<table><tr><th>figure</th><th>value</th><th>spread</th><th>unit</th>
{{- if .Shares}}<th>of limit</th>{{end}}</tr>
{{range .Rows}}<tr><td>{{.Name}}</td><td>{{printf "%.2f" .Value}}</td>
<td>{{if .Samples}}± {{printf "%.2f" .Spread}}{{end}}</td><td>{{.Unit}}</td>
{{- if $.Shares}}<td>{{if .Share}}{{percent .Share}}{{end}}</td>{{end}}</tr>
{{end}}</table>
{{range .Charts}}<figure><figcaption>{{.Unit}}</figcaption>
<svg viewBox="0 0 640 {{printf "%.0f" .Height}}" role="img" aria-label="{{.Unit}}">
<g font-size="11" fill="currentColor">{{range .Bars}}
<text x="264" y="{{printf "%.1f" .Text}}" text-anchor="end">{{.Name}}</text>
<rect x="270" y="{{printf "%.1f" .Y}}" width="{{printf "%.1f" .Width}}" height="14" fill="#2a7ae2"/>
{{- if .Spread}}<path d="M0 0H{{printf "%.1f" .Length}}" stroke="currentColor" stroke-width="2"
transform="translate({{printf "%.1f" .From}} {{printf "%.1f" .Middle}})"/>{{end}}
<text x="580" y="{{printf "%.1f" .Text}}">{{printf "%.2f" .Value}}</text>{{end}}</g>
</svg></figure>
{{end}}{{range .Plots}}<figure><figcaption>{{.Title}}</figcaption>
<svg viewBox="-50 -12 640 250" role="img" aria-label="{{.Title}}">
<g stroke="#8884" fill="none">{{range .Lines}}<path d="M0 {{printf "%.1f" .At}}H560"/>{{end}}</g>
<g font-size="11" fill="currentColor">
{{range .Lines}}<text x="-6" y="{{printf "%.1f" .At}}" text-anchor="end" dy="4">
{{- .Text}}</text>{{end}}
{{range .Ticks}}<text x="{{printf "%.1f" .At}}" y="216" text-anchor="middle">
{{- .Text}}</text>{{end}}
<text x="560" y="232" text-anchor="end">{{.X}}</text><text x="-44" y="-2">{{.Y}}</text></g>
<polyline points="{{.Points}}" fill="none" stroke="#2a7ae2" stroke-width="2"/>
</svg></figure>
{{end}}</body></html>
`))
