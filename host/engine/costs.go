package engine

import (
	"time"

	"github.com/kvrelay/engine/host/scheduler"
)

// costFit is a running least-squares fit of step time = fixed + perToken·tokens +
// perContext·(context tokens that those tokens attend to), in which older steps count less.
type costFit struct {
	last time.Duration
	// Weighted sums over steps: of 1, x and z, of their products, and of y, xy and zy, with x =
	// tokens, z = the sum of their contexts, and y = seconds.
	n, x, z, xx, xz, zz, y, xy, zy float64
	// known is the latest fit of steps that differed: an engine at full load makes equal ones.
	known fitted
}

// fade is how much of a step's weight is left after the next one.
const fade = 0.98

func (c *costFit) add(tokens, context int, took time.Duration) {
	c.last = took
	x, z, y := float64(tokens), float64(context), took.Seconds()
	for _, sum := range []struct {
		of  *float64
		add float64
	}{
		{&c.n, 1}, {&c.x, x}, {&c.z, z}, {&c.xx, x * x}, {&c.xz, x * z}, {&c.zz, z * z},
		{&c.y, y}, {&c.xy, x * y}, {&c.zy, z * y},
	} {
		*sum.of = *sum.of*fade + sum.add
	}
}

// fitted is what a step costs.
type fitted struct {
	fixed, token time.Duration
	contextPS    uint32
}

// fit returns the costs; zero before the first step. While all steps seen have the same number of
// tokens they are those of the latest steps that had not, or all of a step's time is its tokens'.
// None is negative: a share that would be is 0, and the rest is fitted without it, as where tokens
// and context have grown in step and the context's share cannot be told.
func (c *costFit) fit() fitted {
	mx, mz, my := c.x/max(c.n, 1), c.z/max(c.n, 1), c.y/max(c.n, 1)
	// Sums of squares and products around the means.
	sxx, szz, sxz := c.xx-c.n*mx*mx, c.zz-c.n*mz*mz, c.xz-c.n*mx*mz
	sxy, szy := c.xy-c.n*mx*my, c.zy-c.n*mz*my
	if c.n < 2 || sxx <= 1e-9*c.xx {
		if c.known == (fitted{}) && c.x > 0 {
			return fitted{token: time.Duration(c.y / c.x * 1e9)}
		}
		return c.known
	}
	slope, context := sxy/sxx, 0.0
	if det := sxx*szz - sxz*sxz; c.n >= 3 && det > 1e-6*sxx*szz {
		slope, context = (sxy*szz-szy*sxz)/det, (szy*sxx-sxy*sxz)/det
		switch {
		case context < 0:
			slope, context = sxy/sxx, 0
		case slope < 0:
			slope, context = 0, max(szy/szz, 0)
		}
	}
	slope = max(slope, 0)
	base := max(my-slope*mx-context*mz, 0)
	c.known = fitted{
		fixed: time.Duration(base * 1e9), token: time.Duration(slope * 1e9),
		contextPS: uint32(min(context*1e12, 1<<32-1)),
	}
	return c.known
}

// stepCosts is what policies are told about time and the links.
func (e *Engine) stepCosts() scheduler.StepCosts {
	f := e.costs.fit()
	costs := scheduler.StepCosts{
		LastStep: e.costs.last, Fixed: f.fixed, PerToken: f.token, PerContextTokenPS: f.contextPS,
	}
	if e.sender != nil {
		costs.SendBacklogBytes = e.peers.backlog
		costs.LinkBytesPerUS = e.peers.rate.perMicrosecond()
		costs.Peers = e.peers.table
	}
	return costs
}

// contextOf sums the contexts of a plan's tokens: the token at position p attends to p+1 of them.
func contextOf(plan *scheduler.Plan) (sum int) {
	for _, c := range plan.Chunks {
		sum += (c.Start + 1 + c.End) * (c.End - c.Start) / 2
	}
	return sum
}
