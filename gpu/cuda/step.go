package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// op is one thing to do in the compute stream: a kernel, a product where its M is not 0, or a copy
// within the device where its bytes are not.
type op struct {
	launch  kernels.Launch
	product driver.Product
	to      driver.Pointer
	from    driver.Pointer
	bytes   int64
}

// queue adds a kernel to the batch of work under way. Empty ones are nothing to do.
func (a *arena) queue(l kernels.Launch) {
	if !l.Empty() {
		a.ops = append(a.ops, op{launch: l})
		a.product = -1
	}
}

// runArena gives a batch of work to the stream: what it reads first. Equal batches run as a graph
// from the second time on.
func (d *Device) runArena(a *arena) error {
	if a.used > 0 {
		if err := d.driver.CopyIn(a.device, a.host[:a.used], d.compute); err != nil {
			return err
		}
	}
	if err := d.graphs.run(d, a.ops); err != nil {
		return err
	}
	return d.driver.Record(a.done, d.compute)
}

// direct gives work to the stream, kernels in runs of one call.
func (d *Device) direct(ops []op) error {
	var run []driver.Launch
	flush := func() error {
		if len(run) == 0 {
			return nil
		}
		err := d.driver.Launch(d.compute, run...)
		run = run[:0]
		return err
	}
	for i := range ops {
		o := &ops[i]
		if o.product.M == 0 && o.bytes == 0 {
			run = append(run, d.launch(&o.launch))
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		err := error(nil)
		if o.bytes > 0 {
			err = d.driver.CopyWithin(o.to, o.from, o.bytes, d.compute)
		} else {
			err = d.driver.Multiply(o.product, d.compute)
		}
		if err != nil {
			return err
		}
	}
	return flush()
}

func (d *Device) launch(l *kernels.Launch) driver.Launch {
	return driver.Launch{Function: d.functions[l.Kernel], Grid: l.Grid, Block: l.Block,
		Shared: l.Shared, Params: l.Args()}
}

// Limits of the graphs.
const (
	// maxGraphs bounds how many are kept; the one used longest ago goes.
	maxGraphs = 64
	// leastOps is how many ops make a graph worth it.
	leastOps = 8
)

// graphs replay batches of work that come again, as the steps of a decode do: what changes from
// step to step lies in the arena, whose copy is not part of the graph. They are the driving
// thread's own.
type graphs struct {
	seen  map[uint64]*graph
	turn  uint64
	seed  maphash.Seed
	bytes []byte
}

// graph is one batch of work: key is all of it, graph 0 until it has come twice.
type graph struct {
	key   []byte
	graph driver.Graph
	used  uint64
}

func (g *graphs) run(d *Device, ops []op) error {
	if d.options.NoGraphs || len(ops) < leastOps {
		return d.direct(ops)
	}
	if g.seen == nil {
		g.seen, g.seed = map[uint64]*graph{}, maphash.MakeSeed()
	}
	g.turn++
	g.bytes = appendKey(g.bytes[:0], ops)
	sum := maphash.Bytes(g.seed, g.bytes)
	known := g.seen[sum]
	if known == nil || !bytes.Equal(known.key, g.bytes) {
		g.forget(d, sum)
		g.seen[sum] = &graph{key: slices.Clone(g.bytes), used: g.turn}
		return d.direct(ops)
	}
	known.used = g.turn
	if known.graph == 0 {
		if err := d.capture(known, ops); err != nil {
			return err
		}
	}
	return d.driver.Replay(known.graph, d.compute)
}

// capture makes the graph of a batch of work, which does not run meanwhile.
func (d *Device) capture(to *graph, ops []op) error {
	if err := d.driver.BeginCapture(d.compute); err != nil {
		return err
	}
	err := d.direct(ops)
	g, end := d.driver.EndCapture(d.compute)
	if err = errors.Join(err, end); err != nil {
		return err
	}
	to.graph = g
	return nil
}

// forget makes room: for the sum, whose entry is of other work, and below the limit.
func (g *graphs) forget(d *Device, sum uint64) {
	drop := []uint64{sum}
	if len(g.seen) >= maxGraphs {
		oldest, turn := sum, g.turn
		for key, known := range g.seen {
			if known.used < turn {
				oldest, turn = key, known.used
			}
		}
		drop = append(drop, oldest)
	}
	for _, key := range drop {
		if known := g.seen[key]; known != nil && known.graph != 0 {
			_ = d.driver.FreeGraph(known.graph) // It is not launched again whatever this says.
		}
		delete(g.seen, key)
	}
}

// appendKey appends all that the work depends on.
func appendKey(key []byte, ops []op) []byte {
	number := func(v uint64) { key = binary.LittleEndian.AppendUint64(key, v) }
	for i := range ops {
		o := &ops[i]
		switch p := &o.product; {
		case p.M > 0:
			for _, v := range []uint64{1, uint64(p.M), uint64(p.N), uint64(p.K), uint64(p.A),
				uint64(p.B), uint64(p.C), uint64(p.In), uint64(p.Out), driver.Float(p.Beta)} {
				number(v)
			}
		case o.bytes > 0:
			for _, v := range []uint64{2, uint64(o.to), uint64(o.from), uint64(o.bytes)} {
				number(v)
			}
		default:
			l := &o.launch
			number(3)
			number(uint64(l.Kernel))
			for d := range 3 {
				number(uint64(l.Grid[d])<<32 | uint64(l.Block[d]))
			}
			number(uint64(l.Shared))
			for _, v := range l.Args() {
				number(v)
			}
		}
	}
	return key
}
