package model

import (
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/batch"
)

// choose lets the choosers of one block of rows choose from the best logits, where the device finds
// them by itself; `from` is the first of the block's wanted rows. A family that caps logits does so
// on the host, which may make equals of what was not.
func (p *pass) choose(from int) {
	s := p.s
	s.chosen = slices.Grow(s.chosen[:from], p.rows)[:from+p.rows]
	clear(s.chosen[from:])
	device, ok := p.device.(gpu.Chooser)
	if !ok || p.weights.blueprint.logitCap != 0 || p.config.Vocabulary > gpu.MaxTopKWidth ||
		p.err != nil {
		return
	}
	k := &s.best
	k.X, k.Width, k.K = s.logits, p.config.Vocabulary, 0
	k.Temperatures = slices.Grow(k.Temperatures[:0], p.rows)[:p.rows]
	for r, c := range s.choosers[from:][:p.rows] {
		k.Temperatures[r] = 1
		if c == nil {
			continue
		}
		best, temperature := c.Looks()
		k.K = max(k.K, min(best, k.Width, gpu.MaxTopK))
		if best > 1 {
			k.Temperatures[r] = temperature
		}
	}
	k.Places = slices.Grow(k.Places[:0], p.rows*k.K)[:p.rows*k.K]
	switch k.K {
	case 0:
	case 1:
		p.do("choose", device.Argmax(k.Places, k.X, k.Width))
		p.offer(from, func(r int) (batch.Best, bool) {
			return batch.Best{IDs: k.Places[r:][:1], Vocabulary: k.Width}, k.Places[r] >= 0
		})
	default:
		k.Values = slices.Grow(k.Values[:0], p.rows*k.K)[:p.rows*k.K]
		k.Sums = slices.Grow(k.Sums[:0], p.rows)[:p.rows]
		p.do("choose", device.TopK(*k))
		p.offer(from, func(r int) (batch.Best, bool) {
			return batch.Best{IDs: k.Places[r*k.K:][:k.K], Logits: k.Values[r*k.K:][:k.K],
					Vocabulary: k.Width, Sum: float64(k.Sums[r]), SumError: gpu.SumError},
				k.Sums[r] == k.Sums[r]
		})
	}
}

// offer shows each chooser of the block what is best of its row, and notes who chose. Who needs all
// is not asked.
func (p *pass) offer(from int, best func(row int) (b batch.Best, ok bool)) {
	if p.err != nil {
		return
	}
	for r, c := range p.s.choosers[from:][:p.rows] {
		if c == nil {
			continue
		}
		if looks, _ := c.Looks(); looks == 0 || looks > gpu.MaxTopK {
			continue
		}
		if b, ok := best(r); ok {
			p.s.chosen[from+r] = c.Choose(b)
		}
	}
}

// readLogits brings those rows of the block to the host from which nobody has chosen.
func (p *pass) readLogits(from int) {
	s, width := p.s, p.config.Vocabulary
	for r := from; r < from+p.rows; {
		if s.chosen[r] {
			s.rows = append(s.rows, nil)
			r++
			continue
		}
		end := r + 1
		for end < from+p.rows && !s.chosen[end] {
			end++
		}
		logits := s.host[r*width : end*width]
		p.do("read logits", p.device.Read(logits, s.logits, (r-from)*width))
		p.weights.blueprint.capLogits(logits)
		for ; r < end; r++ {
			s.rows = append(s.rows, s.host[r*width:][:width:width])
		}
	}
}
