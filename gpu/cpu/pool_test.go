package cpu

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// tally counts how often each task was done, and by whom.
type tally struct {
	done    []atomic.Int32
	workers int
	foreign atomic.Bool
}

func (j *tally) do(worker, task int) {
	if worker < 0 || worker >= j.workers {
		j.foreign.Store(true)
	}
	j.done[task].Add(1)
	if task%17 == 0 {
		runtime.Gosched()
	}
}

// TestPool: every task of every job is done once, before run returns, whether workers spin or park.
func TestPool(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for threads := 1; threads <= 5; threads++ {
		p := newPool(threads)
		for range 300 {
			j := &tally{done: make([]atomic.Int32, random.IntN(60)), workers: threads}
			p.run(len(j.done), j)
			for i := range j.done {
				if n := j.done[i].Load(); n != 1 {
					t.Fatalf("seed %d, %d threads: task %d was done %d times", seed, threads, i, n)
				}
			}
			if j.foreign.Load() {
				t.Fatal("a worker without a number")
			}
			if random.IntN(50) == 0 {
				for range 2000 { // long enough for the workers to park
					runtime.Gosched()
				}
			}
		}
		p.close()
	}
}

// TestPoolWithoutAWorker: a worker that never comes to run holds nobody up, and a worker has the
// same tasks in every job of as many.
func TestPoolWithoutAWorker(t *testing.T) {
	p := &pool{caller: newGate(), shares: make([]share, 3),
		workers: []*gate{newGate(), newGate()}}
	j := &order{}
	p.run(9, j)
	if want := []int{0, 1, 2, 5, 4, 3, 8, 7, 6}; !slices.Equal(j.tasks, want) {
		t.Errorf("the only worker did %v, want %v", j.tasks, want)
	}
}

// order is the tasks as one worker did them.
type order struct{ tasks []int }

func (j *order) do(_, task int) { j.tasks = append(j.tasks, task) }
