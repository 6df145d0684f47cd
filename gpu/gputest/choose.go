package gputest

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// testChoice: a device that finds the best of rows gives what a sort of the numbers gives that Read
// has, with many equals and numbers that nothing may choose, whether they were written or are a
// product's. It says of rows without a best that they have none.
func testChoice(p *pair) {
	d, ok := p.device.(gpu.Chooser)
	if !ok {
		p.Skip("the device leaves the choice to the host")
	}
	for _, width := range []int{1, 3, 257, 1000} {
		rows := p.between(1, 5)
		x := p.choices(rows * width)
		for r := range rows {
			x[r*width+p.between(0, width-1)] = float32(p.between(0, 3))
		}
		p.choose(d, p.buffer(p.device, x), rows, width)
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			x[p.between(0, width-1)] = float32(bad)
			p.chooseNothing(d, p.buffer(p.device, x), rows, width)
		}
		for i := range width {
			x[i] = float32(math.Inf(-1))
		}
		p.chooseNothing(d, p.buffer(p.device, x), rows, width)
	}
	const inner = 40
	for range 4 {
		rows, width := p.between(1, 4), p.between(30, 400)
		to, from := p.buffer(p.device, make([]float32, rows*width)), p.values(rows*inner)
		w := p.pack(p.device, p.tensor(gpu.BF16, width, inner))
		p.must(p.device.MatMul(gpu.MatMulArgs{Dst: to, X: p.buffer(p.device, from), W: w,
			Rows: rows}))
		p.choose(d, to, rows, width)
	}
	p.refuseChoices(d)
}

// choices are numbers with many equals among them, and some that are never chosen.
func (p *pair) choices(n int) []float32 {
	x := p.values(n)
	for i := range x {
		switch p.between(0, 3) {
		case 0:
			x[i] = float32(math.Round(float64(x[i])))
		case 1:
			x[i] = float32(math.Inf(-1))
		}
	}
	return x
}

// choose compares both methods with a sort of what Read gives behind them.
func (p *pair) choose(d gpu.Chooser, x gpu.Buffer, rows, width int) {
	p.Helper()
	best := make([]int32, rows)
	p.must(d.Argmax(best, x, width))
	k := gpu.TopKArgs{X: x, Width: width, K: p.between(1, min(width, gpu.MaxTopK)),
		Sums: make([]float32, rows)}
	k.Places, k.Values = make([]int32, rows*k.K), make([]float32, rows*k.K)
	for range rows {
		k.Temperatures = append(k.Temperatures, []float32{0.1, 1, 1.7}[p.between(0, 2)])
	}
	p.must(d.TopK(k))
	numbers := make([]float32, rows*width)
	p.must(p.device.Read(numbers, x, 0))
	for r := range rows {
		row := numbers[r*width:][:width]
		places := make([]int32, width)
		for i := range places {
			places[i] = int32(i)
		}
		slices.SortStableFunc(places, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
		if best[r] != places[0] {
			p.Fatalf("%d wide: the largest is %d, want %d", width, best[r], places[0])
		}
		sum := 0.0
		for i, place := range places {
			sum += math.Exp(float64(row[place]-row[places[0]]) / float64(k.Temperatures[r]))
			if i < k.K && (k.Places[r*k.K+i] != place || k.Values[r*k.K+i] != row[place]) {
				p.Fatalf("%d wide: number %d of %d is %v at %d, want %v at %d", width, i, k.K,
					k.Values[r*k.K+i], k.Places[r*k.K+i], row[place], place)
			}
		}
		if !(math.Abs(float64(k.Sums[r])/sum-1) <= gpu.SumError) {
			p.Fatalf("%d wide: all weigh %v, want %v", width, k.Sums[r], sum)
		}
	}
}

// chooseNothing: row 0 has no best.
func (p *pair) chooseNothing(d gpu.Chooser, x gpu.Buffer, rows, width int) {
	p.Helper()
	best := make([]int32, rows)
	p.must(d.Argmax(best, x, width))
	k := gpu.TopKArgs{X: x, Width: width, K: 1, Places: make([]int32, rows),
		Values: make([]float32, rows), Sums: make([]float32, rows),
		Temperatures: make([]float32, rows)}
	for r := range rows {
		k.Temperatures[r] = 1
	}
	p.must(d.TopK(k))
	if best[0] != -1 || k.Sums[0] == k.Sums[0] {
		p.Fatalf("%d wide, a row without a best: %d, and all weigh %v", width, best[0], k.Sums[0])
	}
}

func (p *pair) refuseChoices(d gpu.Chooser) {
	x := p.buffer(p.device, make([]float32, 10))
	one, number := make([]int32, 1), make([]float32, 1)
	for i, err := range []error{
		d.Argmax(one, x, 11), d.Argmax(one, x, 0), d.Argmax(make([]int32, 2), x, 6),
		d.TopK(gpu.TopKArgs{X: x, Width: 11, K: 1, Temperatures: number, Places: one,
			Values: number, Sums: number}),
		d.TopK(gpu.TopKArgs{X: x, Width: 5, K: 6, Temperatures: number, Places: make([]int32, 6),
			Values: make([]float32, 6), Sums: number}),
		d.TopK(gpu.TopKArgs{X: x, Width: 5, K: 2, Temperatures: number, Places: one,
			Values: number, Sums: number}),
	} {
		if err == nil {
			p.Errorf("choice %d outside the buffer was not refused", i)
		}
	}
}
