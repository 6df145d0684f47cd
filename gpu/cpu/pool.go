package cpu

import (
	"runtime"
	"sync/atomic"
	"time"
)

// job is a kernel cut into tasks that touch disjoint outputs. Which worker does which task changes
// nothing in the result.
type job interface{ do(worker, task int) }

// pool runs jobs on a fixed set of workers; the caller is worker 0. Each worker has an equal share
// of the tasks, the same one for every job of so many tasks: kernels number theirs by rows, and so
// a worker finds its rows in its cache. One that is through takes from the others, so nobody waits
// for a worker that the system does not let run. A worker that finds nothing to do spins for a
// moment, because kernels follow one another within microseconds, then parks.
type pool struct {
	job     job // does not change while tasks are open
	shares  []share
	open    atomic.Int64 // tasks that are not done
	round   atomic.Uint32
	closed  atomic.Bool
	workers []*gate // one for each but the caller
	caller  *gate
}

// share is the tasks [front, back) that a worker has before it. It takes the first, others the
// last.
type share struct {
	ends atomic.Uint64 // back<<32 | front
	_    [56]byte      // shares do not lie in one cache line
}

// set gives tasks [front, back).
func (s *share) set(front, back int) { s.ends.Store(uint64(back)<<32 | uint64(front)) }

// take removes the first task, or the last.
func (s *share) take(last bool) (task int, ok bool) {
	for {
		ends := s.ends.Load()
		front, back := uint32(ends), uint32(ends>>32)
		if front >= back {
			return 0, false
		}
		task = int(front)
		if last {
			back--
			task = int(back)
		} else {
			front++
		}
		if s.ends.CompareAndSwap(ends, uint64(back)<<32|uint64(front)) {
			return task, true
		}
	}
}

const (
	// spinTime is how long a waiter looks before it parks: longer than the host takes between two
	// steps of a generation, because to wake a processor that went idle takes tens of microseconds,
	// in virtual machines more.
	spinTime = 50 * time.Microsecond
	// yieldEvery lets other goroutines of an oversubscribed machine run between looks.
	yieldEvery = 256
)

func newPool(threads int) *pool {
	p := &pool{caller: newGate(), shares: make([]share, threads)}
	for worker := 1; worker < threads; worker++ {
		g := newGate()
		p.workers = append(p.workers, g)
		go p.work(g, worker)
	}
	return p
}

// threads is the number of workers, the caller included.
func (p *pool) threads() int { return len(p.shares) }

// run does tasks [0, tasks) of j and returns when all are done.
func (p *pool) run(tasks int, j job) {
	if tasks <= 1 || len(p.workers) == 0 {
		for task := range tasks {
			j.do(0, task)
		}
		return
	}
	p.job = j
	p.open.Store(int64(tasks))
	for i := range p.shares {
		p.shares[i].set(i*tasks/len(p.shares), (i+1)*tasks/len(p.shares))
	}
	p.round.Add(1)
	for _, g := range p.workers {
		g.open()
	}
	p.drain(0)
	p.caller.wait(func() bool { return p.open.Load() == 0 })
	p.job = nil
}

// drain takes tasks until there are none: the worker's own, then what others have not begun.
func (p *pool) drain(worker int) {
	for i := range p.shares {
		s := &p.shares[(worker+i)%len(p.shares)]
		for {
			task, ok := s.take(i > 0)
			if !ok {
				break
			}
			p.job.do(worker, task)
			if p.open.Add(-1) == 0 && worker > 0 {
				p.caller.open()
			}
		}
	}
}

// work is the life of one worker. It may sleep through a whole job.
func (p *pool) work(g *gate, worker int) {
	seen := uint32(0)
	for {
		g.wait(func() bool { return p.round.Load() != seen })
		seen = p.round.Load()
		if p.closed.Load() {
			return
		}
		p.drain(worker)
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
	for begun := time.Now(); time.Since(begun) < spinTime; runtime.Gosched() {
		for range yieldEvery {
			if ready() {
				return
			}
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
