package cpu

import (
	"runtime"
	"sync/atomic"
)

// job is a kernel cut into tasks that touch disjoint outputs. Which worker does which task changes
// nothing in the result.
type job interface{ do(worker, task int) }

// pool runs jobs on a fixed set of workers; the caller is worker 0. A worker that finds nothing to
// do spins for a moment, because kernels follow one another within microseconds, then parks.
type pool struct {
	job     job
	tasks   int64
	next    atomic.Int64
	pending atomic.Int32
	round   atomic.Uint32
	closed  atomic.Bool
	workers []*gate // one for each but the caller
	caller  *gate
}

const (
	// spins is how often a waiter looks before it parks: some ten microseconds.
	spins = 4000
	// yieldEvery lets other goroutines of an oversubscribed machine run between looks.
	yieldEvery = 256
)

func newPool(threads int) *pool {
	p := &pool{caller: newGate()}
	for worker := 1; worker < threads; worker++ {
		g := newGate()
		p.workers = append(p.workers, g)
		go p.work(g, worker)
	}
	return p
}

// threads is the number of workers, the caller included.
func (p *pool) threads() int { return len(p.workers) + 1 }

// run does tasks [0, tasks) of j and returns when all are done.
func (p *pool) run(tasks int, j job) {
	if tasks <= 1 || len(p.workers) == 0 {
		for task := range tasks {
			j.do(0, task)
		}
		return
	}
	p.job, p.tasks = j, int64(tasks)
	p.next.Store(0)
	p.pending.Store(int32(len(p.workers)))
	p.round.Add(1)
	for _, g := range p.workers {
		g.open()
	}
	p.drain(0)
	p.caller.wait(func() bool { return p.pending.Load() == 0 })
	p.job = nil
}

// drain takes tasks until there are none.
func (p *pool) drain(worker int) {
	for {
		task := p.next.Add(1) - 1
		if task >= p.tasks {
			return
		}
		p.job.do(worker, int(task))
	}
}

// work is the life of one worker.
func (p *pool) work(g *gate, worker int) {
	seen := uint32(0)
	for {
		g.wait(func() bool { return p.round.Load() != seen })
		seen++
		if p.closed.Load() {
			return
		}
		p.drain(worker)
		if p.pending.Add(-1) == 0 {
			p.caller.open()
		}
	}
}

// close ends the workers. No run may be under way.
func (p *pool) close() {
	p.closed.Store(true)
	p.round.Add(1)
	for _, g := range p.workers {
		g.open()
	}
}

// gate lets one goroutine wait for a condition that another makes true before it calls open.
type gate struct {
	parked atomic.Bool
	signal chan struct{}
}

func newGate() *gate { return &gate{signal: make(chan struct{}, 1)} }

// wait returns once ready holds. Parking is announced before the last look, and open looks for the
// announcement after the condition was made true, so one of the two always sees the other.
func (g *gate) wait(ready func() bool) {
	for i := 1; i <= spins; i++ {
		if ready() {
			return
		}
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
	for {
		g.parked.Store(true)
		if ready() && g.parked.CompareAndSwap(true, false) {
			return
		}
		<-g.signal
		if ready() {
			return
		}
	}
}

// open wakes the waiter if it parked.
func (g *gate) open() {
	if g.parked.CompareAndSwap(true, false) {
		g.signal <- struct{}{}
	}
}
