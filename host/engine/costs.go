package engine

import (
	"time"

	"github.com/kvrelay/engine/host/scheduler"
)

// costFit is a running least-squares fit of step time = fixed + perToken·tokens, in which older
// steps count less and less.
type costFit struct {
	last time.Duration
	// weighted sums over steps of 1, x, y, x², xy with x = tokens and y = seconds
	n, x, y, xx, xy float64
}

// fade is how much of a step's weight is left after the next one.
const fade = 0.98

func (c *costFit) add(tokens int, took time.Duration) {
	c.last = took
	x, y := float64(tokens), took.Seconds()
	c.n, c.x, c.y = c.n*fade+1, c.x*fade+x, c.y*fade+y
	c.xx, c.xy = c.xx*fade+x*x, c.xy*fade+x*y
}

// fit returns the fixed cost and that of a token; zero while the steps seen cannot tell them apart.
func (c *costFit) fit() (fixed, token time.Duration) {
	spread := c.n*c.xx - c.x*c.x
	if c.n < 2 || spread <= 1e-9*c.n*c.xx {
		return 0, 0
	}
	slope := max((c.n*c.xy-c.x*c.y)/spread, 0)
	base := max((c.y-slope*c.x)/c.n, 0)
	return time.Duration(base * 1e9), time.Duration(slope * 1e9)
}

// stepCosts is what policies are told about time and the links.
func (e *Engine) stepCosts() scheduler.StepCosts {
	fixed, token := e.costs.fit()
	costs := scheduler.StepCosts{LastStep: e.costs.last, Fixed: fixed, PerToken: token}
	if e.sender != nil {
		costs.SendBacklogBytes = e.sender.Backlog()
	}
	return costs
}
