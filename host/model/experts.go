package model

import (
	"slices"

	"github.com/kvrelay/engine/gpu"
)

// routing is which rows of a batch go through which expert of a layer, and how much of what it
// gives counts for them.
type routing struct {
	scores  []float32   // the router's, [rows][experts]
	rows    [][]int32   // by expert, ascending
	factors [][]float32 // beside rows
	best    []int       // experts of one row
}

// mixture sends each row of x through the experts that its router likes best, and adds what they
// give to the residual stream: in the order of the experts, whatever the other rows of the batch
// do, so that a row's sum has one order. An expert that no row chose costs nothing.
func (p *pass) mixture(l *layer) {
	s, r, all := p.s, &p.s.routing, p.rows
	p.matmul(l.router, s.scores, s.x, false)
	n := all * len(l.experts)
	r.scores = slices.Grow(r.scores[:0], n)[:n]
	p.do("read the router's scores", p.device.Read(r.scores, s.scores, 0))
	if p.err != nil {
		return
	}
	r.route(len(l.experts), p.config.Chosen)
	for e, expert := range l.experts {
		if p.rows = len(r.rows[e]); p.rows == 0 {
			continue
		}
		p.do("gather", p.device.Gather(s.expert, s.x, r.rows[e], p.config.Hidden))
		p.gate(l, expert, s.expert)
		p.matmul(expert.down, s.expert, s.mlp, false)
		p.do("add rows", p.device.AddRows(gpu.AddRowsArgs{Dst: p.hidden, X: s.expert,
			Rows: r.rows[e], Factors: r.factors[e], Width: p.config.Hidden}))
	}
	p.rows = all
}

// route fills rows and factors from scores.
func (r *routing) route(experts, chosen int) {
	if len(r.rows) < experts {
		r.rows, r.factors = make([][]int32, experts), make([][]float32, experts)
	}
	for e := range experts {
		r.rows[e], r.factors[e] = r.rows[e][:0], r.factors[e][:0]
	}
	for row := range len(r.scores) / experts {
		r.choose(int32(row), r.scores[row*experts:][:experts], chosen)
	}
}

// choose puts a row down for the experts of the highest scores; of equal ones the first is better.
// A factor is the softmax of a score among the chosen ones: their part of the softmax of all,
// scaled to sum to one.
func (r *routing) choose(row int32, scores []float32, chosen int) {
	r.best = r.best[:0]
	for range chosen {
		next := -1
		for e, score := range scores {
			if !slices.Contains(r.best, e) && (next < 0 || score > scores[next]) {
				next = e
			}
		}
		r.best = append(r.best, next)
	}
	top, sum := float64(scores[r.best[0]]), 0.0
	for _, e := range r.best {
		sum += exponential(float64(scores[e]) - top)
	}
	for _, e := range r.best {
		r.rows[e] = append(r.rows[e], row)
		r.factors[e] = append(r.factors[e], float32(exponential(float64(scores[e])-top)/sum))
	}
}
