package cpu

import (
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// Limits are what this processor does at most with the instructions and threads of a device, as
// loops that do one kind of work and nothing else find it.
type Limits struct {
	FMA    float64 // float32 operations a second; a fused multiply-add is two
	Dot    float64 // the same of 8-bit integers that are multiplied and added up
	Small  float64 // the same of weights below 32; 0 where they are no faster
	Pairs  float64 // the same of bfloat16 in pairs; 0 where the device multiplies none
	Tiles  float64 // the same of bfloat16 in tiles; 0 without AMX
	Cache  float64 // bytes a second read from what each thread's second-level cache holds
	Memory float64 // bytes a second read from memory
}

// limitLoops are those of an instruction set.
type limitLoops struct {
	fma, dot       func(turns int)
	fmaOps, dotOps int // of a turn
	read           func(from *byte, turns int)
	pairs, tiles   func(turns int) // nil without
	small          func(turns int) // nil where it would be dot
	smallOps       int             // of a turn
	pairOps        int             // of a turn
	tileOps        int
}

const (
	limitReadBytes = 512       // a turn of a reading loop
	limitNear      = 128 << 10 // a thread's part of what lies in its second-level cache
	limitPart      = 1 << 20   // a task's part of what lies in memory
	limitTurns     = 1 << 14   // a task's turns of an arithmetic loop
	limitRounds    = 8
	limitTime      = 10 * time.Millisecond // of a round, at least
)

// Limits measures them on the device's threads, which compute nothing else meanwhile. It reads far
// bytes of memory, which should be several times what the caches hold.
func (d *Device) Limits(far int) Limits {
	loops := goLimits()
	if fast := fastLimits(d.micro.name); fast != nil {
		loops = fast
	}
	arithmetic := func(loop func(int), ops int) float64 {
		return d.fastest(tasksPerThread*d.pool.threads(), float64(limitTurns*ops),
			func(int, int) { loop(limitTurns) })
	}
	near, mapped := make([]*memory, d.pool.threads()), newMemory(max(far, limitPart))
	for i := range near {
		near[i] = newMemory(limitNear)
	}
	clear(mapped.bytes) // Untouched pages are all the one page of zeros.
	l := Limits{FMA: arithmetic(loops.fma, loops.fmaOps), Dot: arithmetic(loops.dot, loops.dotOps)}
	if loops.small != nil {
		l.Small = arithmetic(loops.small, loops.smallOps)
	}
	if loops.pairs != nil && d.micro.roundPairs != nil {
		l.Pairs = arithmetic(loops.pairs, loops.pairOps)
	}
	if loops.tiles != nil {
		l.Tiles = arithmetic(loops.tiles, loops.tileOps)
	}
	const again = 64
	l.Cache = d.fastest(tasksPerThread*d.pool.threads(), again*limitNear, func(worker, _ int) {
		for range again {
			loops.read((*byte)(near[worker].at(0)), limitNear/limitReadBytes)
		}
	})
	l.Memory = d.fastest(len(mapped.bytes)/limitPart, limitPart, func(_, task int) {
		loops.read((*byte)(mapped.at(task*limitPart)), limitPart/limitReadBytes)
	})
	return l
}

// Product is what bounds a product of so many rows with weights of a type, in operations of it a
// second: the class tdp takes several products of bfloat16 for one.
func (d *Device) Product(l Limits, t gpu.DType, rows int) float64 {
	switch {
	case t.Quantised() && d.class.int8 && formats[t].kind != kindByte && l.Small > 0:
		return l.Small
	case t.Quantised() && d.class.int8:
		return l.Dot
	case t == gpu.BF16 && l.Pairs > 0:
		return l.Pairs
	case t.Quantised() || !d.class.tdp:
		return l.FMA
	case l.Tiles > 0 && rows >= amxFrom:
		return l.Tiles / float64(len(tdpForms[t].products))
	}
	return l.FMA / float64(len(tdpForms[t].products))
}

// fastest does tasks of so much work each, round by round, and returns the work a second of the
// fastest round: what disturbs a round makes it slower, never faster.
func (d *Device) fastest(tasks int, work float64, do func(worker, task int)) (best float64) {
	defer runtime.KeepAlive(do)
	j := limitJob(do)
	for range limitRounds {
		begun, done := time.Now(), 0.0
		for done == 0 || time.Since(begun) < limitTime {
			d.pool.run(tasks, j)
			done += float64(tasks) * work
		}
		best = max(best, done/time.Since(begun).Seconds())
	}
	return best
}

type limitJob func(worker, task int)

func (j limitJob) do(worker, task int) { j(worker, task) }

// goLimits are loops in plain Go.
func goLimits() *limitLoops {
	return &limitLoops{fma: limitFMAGo, fmaOps: 2 * 8, dot: limitDotGo, dotOps: 2 * 8,
		read: limitReadGo}
}

// limitSink keeps the compiler from dropping a loop whose result nobody wants: what it compares
// with never comes.
func limitSink(sum float64) {
	if sum == -1 {
		panic("cpu: a loop of positive numbers gave a negative one")
	}
}

func limitFMAGo(turns int) {
	a0, a1, a2, a3, a4, a5, a6, a7 := 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0
	for range turns {
		a0, a1 = math.FMA(a0, 0.5, 1), math.FMA(a1, 0.5, 1)
		a2, a3 = math.FMA(a2, 0.5, 1), math.FMA(a3, 0.5, 1)
		a4, a5 = math.FMA(a4, 0.5, 1), math.FMA(a5, 0.5, 1)
		a6, a7 = math.FMA(a6, 0.5, 1), math.FMA(a7, 0.5, 1)
	}
	limitSink(a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7)
}

func limitDotGo(turns int) {
	var a [8]int32
	for i := range turns {
		x := int32(int8(i))
		a[0] += x * 3
		a[1] += x * 5
		a[2] += x * 7
		a[3] += x * 11
		a[4] += x * 13
		a[5] += x * 17
		a[6] += x * 19
		a[7] += x * 23
	}
	sum := 0.0
	for _, x := range a {
		sum += math.Abs(float64(x))
	}
	limitSink(sum)
}

func limitReadGo(from *byte, turns int) {
	var a, b, c, d uint64
	words := unsafe.Slice((*uint64)(unsafe.Pointer(from)), turns*limitReadBytes/8)
	for ; len(words) >= 4; words = words[4:] {
		a, b, c, d = a^words[0], b^words[1], c^words[2], d^words[3]
	}
	limitSink(float64(a ^ b ^ c ^ d))
}
