package sim

import "time"

// clock is virtual time: what shall happen, in order. Of two events at one time the one that was
// asked for first comes first, so that a run repeats.
type clock struct {
	now   time.Duration
	asked uint64
	heap  []event
}

type event struct {
	at    time.Duration
	order uint64
	do    func()
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.order < f.order }

// after lets do happen when so much time has passed.
func (c *clock) after(d time.Duration, do func()) {
	c.asked++
	c.heap = append(c.heap, event{c.now + max(d, 0), c.asked, do})
	for i := len(c.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !c.heap[i].before(c.heap[up]) {
			break
		}
		c.heap[i], c.heap[up] = c.heap[up], c.heap[i]
		i = up
	}
}

// next lets the next event happen; false when there is none.
func (c *clock) next() bool {
	if len(c.heap) == 0 {
		return false
	}
	first, last := c.heap[0], len(c.heap)-1
	c.heap[0] = c.heap[last]
	c.heap[last] = event{}
	c.heap = c.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if c.heap[child].before(c.heap[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
	c.now = first.at
	first.do()
	return true
}
