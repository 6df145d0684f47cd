package cuda

import (
	"fmt"
	"runtime"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// UnpackRanges is UnpackKV of several ranges of one layer, whose bytes follow one another in src:
// one copy to the device and one kernel for all that fits the pinned memory of directBytes. The
// ranges share no slot. What was written is there when it returns; after an error some may be.
func (d *Device) UnpackRanges(pool gpu.KV, ranges []gpu.KVRange, src []byte) error {
	k := pool.(*kv)
	rest := src
	for i, r := range ranges {
		n := r.Count * k.shape.TokenBytes()
		if n < 0 || n > len(rest) || r.Layer != ranges[0].Layer {
			return fmt.Errorf("unpack: range %d of %d, %+v, with %d bytes left, the first is of "+
				"layer %d", i, len(ranges), r, len(rest), ranges[0].Layer)
		}
		if err := cpu.CheckRange(k.shape, r, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("unpack: %d bytes behind the last of %d ranges", len(rest), len(ranges))
	}
	defer runtime.KeepAlive(k)
	for _, r := range ranges {
		d.outgoing.rangeOverwritten(k, r)
	}
	for len(ranges) > 0 {
		n, slots := fitting(ranges, k.shape.TokenBytes())
		bytes := slots * k.shape.TokenBytes()
		var err error
		switch {
		case n == 0: // A range larger than the pinned memory goes in pieces.
			n, bytes = 1, ranges[0].Count*k.shape.TokenBytes()
			err = d.outgoing.write(d, k, ranges[0], src[:bytes])
		case bytes > 0:
			err = d.outgoing.writeAll(d, k, ranges[:n], src[:bytes])
		}
		if err != nil {
			return err
		}
		ranges, src = ranges[n:], src[bytes:]
	}
	return nil
}

// listBytes is what the list of ranges takes in front of their bytes, which are aligned for the
// kernel.
func listBytes(ranges int) int { return aligned(4 * kernels.RangeWords * ranges) }

// fitting is how many of the first ranges fit the pinned memory, and their slots.
func fitting(ranges []gpu.KVRange, tokenBytes int) (n, slots int) {
	for n < len(ranges) &&
		listBytes(n+1)+(slots+ranges[n].Count)*tokenBytes <= directBytes {
		slots += ranges[n].Count
		n++
	}
	return n, slots
}

// writeAll copies ranges that fit into their pages.
func (o *outgoing) writeAll(d *Device, k *kv, ranges []gpu.KVRange, src []byte) error {
	what := list(k, ranges)
	unpack := kernels.PackPages{Packed: uint64(o.arrived) + uint64(what.head),
		Layer: k.layer(ranges[0].Layer), Ranges: uint64(o.arrived), Count: len(ranges),
		Shape: k.shape}.Unpack()
	err := o.inOrder(d, func() error {
		ints(o.piece, what.words)
		piece := o.piece[:what.head+copy(o.piece[what.head:], src)]
		if err := d.driver.CopyIn(o.arrived, piece, o.stream); err != nil {
			return err
		}
		if err := d.driver.Launch(o.stream, d.launch(&unpack)); err != nil {
			return err
		}
		return d.driver.Finish(o.stream)
	})
	if err != nil {
		return fmt.Errorf("copy slots of %d pages in: %w", len(ranges), err)
	}
	return nil
}
