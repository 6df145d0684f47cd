package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// PackLane begins to copy ranges of one layer into a lane from byte at on, a multiple of 256: one
// range after another, each in the canonical layout. One kernel packs them, and one copy takes them
// to a lane of the host or of another device; a lane on this device is written by the kernel
// itself. It sees what kernels wrote that were called before the last Flush, and waits for none.
// The slots must stay as they are until wait returns: then the bytes are there for every process.
//
// Without room for it now, wait is nil. After an error nothing of it is under way. Where wait fails
// nobody knows what still is: the lane's memory must not get another use before the process has
// ended. Wait must be called, once.
func (d *Device) PackLane(
	pool gpu.KV, ranges []gpu.KVRange, number, at int,
) (wait func() error, err error) {
	k := pool.(*kv)
	l, err := d.lanes.use(number)
	if err != nil {
		return nil, err
	}
	var s *staged
	if err = checkLane(k, ranges, l, at); err == nil {
		err = d.outgoing.inOrder(d, func() error {
			s, err = d.outgoing.put(d, k, ranges, l, at)
			return err
		})
	}
	if s == nil {
		d.lanes.leave(l)
		if err != nil {
			err = fmt.Errorf("pack a layer for another process: %w", err)
		}
		return nil, err
	}
	failed := err // With something under way.
	return func() error {
		defer d.lanes.leave(l)
		defer runtime.KeepAlive(k)
		if failed != nil {
			return failed
		}
		err := d.bound(func() error { return d.driver.Sync(s.event) })
		d.outgoing.mu.Lock()
		defer d.outgoing.mu.Unlock()
		s.readers--
		return err
	}, nil
}

// checkLane says what is wrong with ranges on their way through a lane.
func checkLane(k *kv, ranges []gpu.KVRange, l *lane, at int) error {
	bytes := 0
	for i, r := range ranges {
		if r.Layer < 0 || r.Layer >= k.shape.Layers || r.Layer != ranges[0].Layer || r.Page < 0 ||
			r.Page >= k.shape.Pages || r.First < 0 || r.Count <= 0 ||
			r.First > k.shape.PageSize-r.Count {
			return fmt.Errorf("%w: range %d of %d, %+v, of %d layers and %d pages of %d slots",
				driver.ErrRefused, i, len(ranges), r, k.shape.Layers, k.shape.Pages,
				k.shape.PageSize)
		}
		bytes += r.Count * k.shape.TokenBytes()
	}
	if bytes == 0 || at < 0 || at%256 != 0 || at > l.bytes-bytes {
		return fmt.Errorf("%w: bytes [%d, %d) of a lane of %d", driver.ErrRefused, at, at+bytes,
			l.bytes)
	}
	return nil
}

// put gives the stream all of a layer's way into a lane. It is under the lock. Nil: nothing is
// under way; an entry with an error: something may be.
func (o *outgoing) put(
	d *Device, k *kv, ranges []gpu.KVRange, l *lane, at int,
) (*staged, error) {
	what := list(k, ranges)
	straight := l.host == nil && !l.far
	s := &staged{pool: k, layer: ranges[0].Layer, ranges: ranges, len: what.head, readers: 1,
		dropped: true}
	if !straight {
		s.len = aligned(what.head + what.bytes)
	}
	if ok, err := o.place(d, s); err != nil || !ok {
		return nil, err
	}
	to := l.device + driver.Pointer(at)
	packed := o.device + driver.Pointer(s.at+what.head)
	if straight {
		packed = to
	}
	err := o.pack(d, s, what, packed)
	switch {
	case err != nil:
	case l.host != nil:
		err = d.driver.CopyOut(l.host[at:][:what.bytes], packed, o.stream)
	case l.far:
		err = d.driver.CopyWithin(to, packed, int64(what.bytes), o.stream)
	}
	if err == nil {
		err = d.driver.Record(s.event, o.stream)
	}
	if err == nil {
		return s, nil
	}
	if finish := d.driver.Finish(o.stream); finish != nil {
		return s, errors.Join(err, finish)
	}
	s.readers = 0
	return nil, err
}

// UnpackLane copies the bytes of a lane from byte at on, as PackLane laid them there, into ranges
// of one layer that share no slot. What was written is there when it returns, and nothing reads the
// lane any more; after an error some may be.
func (d *Device) UnpackLane(pool gpu.KV, ranges []gpu.KVRange, number, at int) error {
	k := pool.(*kv)
	l, err := d.lanes.use(number)
	if err != nil {
		return err
	}
	defer d.lanes.leave(l)
	defer runtime.KeepAlive(k)
	if err = checkLane(k, ranges, l, at); err == nil && l.device == 0 {
		err = fmt.Errorf("%w: nothing is taken from lane %d", driver.ErrRefused, number)
	}
	if err != nil {
		return fmt.Errorf("unpack a layer of another process: %w", err)
	}
	for _, r := range ranges {
		d.outgoing.rangeOverwritten(k, r)
	}
	var s *staged
	err = d.outgoing.inOrder(d, func() error {
		s, err = d.outgoing.fetch(d, k, ranges, l, at)
		return err
	})
	if s != nil {
		err = d.bound(func() error { return d.driver.Sync(s.event) })
		d.outgoing.mu.Lock()
		s.readers--
		d.outgoing.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("unpack a layer of another process: %w", err)
	}
	return nil
}

// fetch gives the stream all of a layer's way out of a lane. It is under the lock. The entry holds
// the list of ranges; where the ring has no room for it, all is done when fetch returns, and the
// entry is nil, as it is after an error.
func (o *outgoing) fetch(
	d *Device, k *kv, ranges []gpu.KVRange, l *lane, at int,
) (*staged, error) {
	what := list(k, ranges)
	s := &staged{len: what.head, readers: 1, dropped: true}
	ok, err := o.place(d, s)
	if err != nil {
		return nil, err
	}
	pinned, address := o.piece, o.arrived
	if ok {
		pinned, address = o.ring[s.at:], o.device+driver.Pointer(s.at)
	} else if what.head > len(pinned) {
		return nil, fmt.Errorf("%w: a list of %d ranges", driver.ErrRefused, len(ranges))
	}
	ints(pinned, what.words)
	from := l.device + driver.Pointer(at)
	unpack := kernels.PackPages{Packed: uint64(from), Layer: k.layer(ranges[0].Layer),
		Ranges: uint64(address), Count: len(ranges), Shape: k.shape}.Unpack()
	err = d.driver.CopyIn(address, pinned[:4*len(what.words)], o.stream)
	if err == nil && l.host != nil {
		err = d.driver.CopyIn(from, l.host[at:][:what.bytes], o.stream)
	}
	if err == nil {
		err = d.driver.Launch(o.stream, d.launch(&unpack))
	}
	if err == nil && ok {
		if err = d.driver.Record(s.event, o.stream); err == nil {
			return s, nil
		}
	}
	s.readers = 0
	return nil, errors.Join(err, d.driver.Finish(o.stream))
}
