package bench

// chart shows the rows of one unit, a bar each.
type chart struct {
	Unit   string
	Height float64
	Bars   []chartBar
}

// chartBar is a row: from 0 to its value, with the least and the most of its samples.
type chartBar struct {
	Name            string
	Y, Middle, Text float64
	Width           float64
	Value           float64
	// From and Length are where the line from the least to the most sample stands.
	From, Length float64
	Spread       bool
}

const (
	chartLeft  = 270.0 // where bars begin; names stand before
	chartWidth = 300.0
	chartLine  = 20.0
	// maxChartBars bounds a chart: a table is read better than a longer one.
	maxChartBars = 64
)

// charts are those of a result without a load, whose own plots say more.
func (r *Result) charts() (list []*chart) {
	if r.Load != nil {
		return nil
	}
	byUnit, most := map[string]*chart{}, map[string]float64{}
	for _, row := range r.Rows {
		most[row.Unit] = max(most[row.Unit], row.Value, Quantile(row.Samples, 1))
	}
	for _, row := range r.Rows {
		c := byUnit[row.Unit]
		if c == nil {
			c = &chart{Unit: row.Unit}
			byUnit[row.Unit], list = c, append(list, c)
		}
		if len(c.Bars) == maxChartBars || !(most[row.Unit] > 0) {
			continue
		}
		scale, y := chartWidth/most[row.Unit], c.Height
		c.Bars = append(c.Bars, chartBar{Name: row.Name, Y: y + 3, Middle: y + chartLine/2,
			Text: y + chartLine/2 + 4, Width: row.Value * scale, Value: row.Value,
			From:   chartLeft + Quantile(row.Samples, 0)*scale,
			Length: (Quantile(row.Samples, 1) - Quantile(row.Samples, 0)) * scale,
			Spread: len(row.Samples) > 1})
		c.Height += chartLine
	}
	return list
}
