package cpu

import (
	"math/rand/v2"
	"runtime"
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
