package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/gpu/cuda/kernels"
)

// directBytes is the pinned memory through which single ranges pass, in pieces.
const directBytes = 1 << 20

// outgoing moves keys and values between pages and the host in a stream of its own, beside the
// kernels: it waits for the event behind the last Flush, never for the compute stream's end.
//
// A layer that StageKV is told of is packed into one piece of device memory by one kernel and goes
// to pinned memory in one copy, while the layer's attention and the rest of the pass are computed.
// PackKV takes it from there. Whatever writes to a page that is staged drops the staged copy, so a
// page's next owner never gets its former one's.
type outgoing struct {
	mu     sync.Mutex // guards what follows, and the order of calls in stream
	stream driver.Stream
	after  *job   // the last Flush
	piece  []byte // pinned, directBytes
	// arrived is device memory of as many bytes, for slots on their way in.
	arrived driver.Pointer

	ring    []byte // pinned: where staged layers arrive
	device  driver.Pointer
	entries []*staged // as they lie in the ring, oldest first
	index   map[pageOf][]*staged
	events  []driver.Event // unused ones

	// Counted for whoever watches: layers that were staged, and refused for want of room.
	stagedLayers, refusedLayers int
}

// pageOf names a page of a layer.
type pageOf struct {
	pool        *kv
	layer, page int
}

// staged is one layer's ranges on their way to pinned memory or there.
type staged struct {
	pool    *kv
	layer   int
	ranges  []gpu.KVRange
	at, len int // in the ring
	data    int // where the ranges' bytes begin
	event   driver.Event
	unread  int // bytes that nobody has taken
	readers int
	dropped bool // not in the index any more
}

// open runs on the driving thread.
func (o *outgoing) open(d *Device) error {
	o.index = map[pageOf][]*staged{}
	var err error
	if o.stream, err = d.driver.NewStream(); err != nil {
		return err
	}
	if o.piece, err = d.driver.AllocHost(directBytes); err != nil {
		return err
	}
	if o.arrived, err = d.driver.Alloc(directBytes); err != nil {
		return err
	}
	if o.ring, err = d.driver.AllocHost(d.options.StagingBytes); err != nil {
		return fmt.Errorf("pinned memory for layers on their way out: %w", err)
	}
	o.device, err = d.driver.Alloc(int64(len(o.ring)))
	return err
}

func (o *outgoing) close(d *Device) {
	_ = d.driver.Finish(o.stream) // Its errors belong to calls that have answered.
	_ = d.driver.FreeHost(o.piece)
	_ = d.driver.FreeHost(o.ring)
}

// follow makes what comes next wait for a flushed batch of work.
func (o *outgoing) follow(j *job) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.after = j
}

// inOrder runs f with the stream behind the last Flush. The event exists once the driving thread
// has given the batch to the device: before that a wait for it would be a wait for nothing.
func (o *outgoing) inOrder(d *Device, f func() error) error {
	o.mu.Lock()
	after := o.after
	o.mu.Unlock()
	if after != nil {
		<-after.given
		if after.err != nil {
			return after.err
		}
	}
	return d.bound(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if after != nil {
			if err := d.driver.Wait(o.stream, after.arena.done); err != nil {
				return err
			}
		}
		return f()
	})
}

// halves calls f for the keys and the values of a range: where they lie on the device, and their
// part of data, in pieces of directBytes.
func halves(k *kv, r gpu.KVRange, data []byte, f func(driver.Pointer, []byte) error) error {
	side := k.shape.TokenBytes() / 2
	for half := range 2 {
		at := k.page(r.Layer, r.Page) + uint64((half*k.shape.PageSize+r.First)*side)
		part := data[half*r.Count*side:][:r.Count*side]
		for done := 0; done < len(part); done += directBytes {
			piece := part[done:min(done+directBytes, len(part))]
			if err := f(driver.Pointer(at+uint64(done)), piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// direct copies a range out of its page.
func (o *outgoing) direct(d *Device, k *kv, r gpu.KVRange, dst []byte) error {
	err := o.inOrder(d, func() error {
		return halves(k, r, dst, func(at driver.Pointer, part []byte) error {
			if err := d.driver.CopyOut(o.piece[:len(part)], at, o.stream); err != nil {
				return err
			}
			if err := d.driver.Finish(o.stream); err != nil {
				return err
			}
			copy(part, o.piece)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("copy slots of a page out: %w", err)
	}
	return nil
}

// write copies a range into its page.
func (o *outgoing) write(d *Device, k *kv, r gpu.KVRange, src []byte) error {
	err := o.inOrder(d, func() error {
		return halves(k, r, src, func(at driver.Pointer, part []byte) error {
			if err := d.driver.CopyIn(at, o.piece[:copy(o.piece, part)], o.stream); err != nil {
				return err
			}
			return d.driver.Finish(o.stream)
		})
	})
	if err != nil {
		return fmt.Errorf("copy slots into a page: %w", err)
	}
	return nil
}

// StageKV begins to copy ranges of one layer to pinned memory, where PackKV of them, or of parts of
// them, will find them. It sees what kernels wrote that were called before the last Flush, and
// waits for none. Without room it does nothing: PackKV then reads the pages. The slots must stay as
// they are until they are packed.
func (d *Device) StageKV(pool gpu.KV, layer int, ranges []gpu.KVRange) error {
	k := pool.(*kv)
	if layer < 0 || layer >= k.shape.Layers {
		return fmt.Errorf("stage: layer %d of %d", layer, k.shape.Layers)
	}
	for _, r := range ranges {
		if r.Layer != layer || r.Page < 0 || r.Page >= k.shape.Pages || r.First < 0 ||
			r.Count <= 0 || r.First > k.shape.PageSize-r.Count {
			return fmt.Errorf("stage: %+v of layer %d on %d pages of %d", r, layer, k.shape.Pages,
				k.shape.PageSize)
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	if err := d.outgoing.inOrder(d, func() error {
		return d.outgoing.stage(d, k, layer, ranges)
	}); err != nil {
		return fmt.Errorf("stage layer %d: %w", layer, err)
	}
	return nil
}

// listed is a list of ranges of one layer, as the kernels read it, and what their bytes take.
type listed struct {
	words []int32
	head  int // bytes of the list, which keep what follows them aligned for the kernel
	bytes int
}

func list(k *kv, ranges []gpu.KVRange) (l listed) {
	slots := 0
	for _, r := range ranges {
		l.words = kernels.AppendRange(l.words, r, slots)
		slots += r.Count
	}
	l.head, l.bytes = listBytes(len(ranges)), slots*k.shape.TokenBytes()
	return l
}

// stage is under the lock.
func (o *outgoing) stage(d *Device, k *kv, layer int, ranges []gpu.KVRange) error {
	what := list(k, ranges)
	s := &staged{pool: k, layer: layer, ranges: append([]gpu.KVRange(nil), ranges...),
		len: aligned(what.head + what.bytes), unread: what.bytes}
	ok, err := o.place(d, s)
	if err != nil || !ok {
		o.refusedLayers++
		return err
	}
	s.data = s.at + what.head
	packed := o.device + driver.Pointer(s.data)
	err = o.pack(d, s, what, packed)
	if err == nil {
		err = d.driver.CopyOut(o.ring[s.data:][:what.bytes], packed, o.stream)
	}
	if err == nil {
		err = d.driver.Record(s.event, o.stream)
	}
	if err != nil {
		// Some of it may be under way: the room is not given to others before the stream is done.
		err = errors.Join(err, d.driver.Record(s.event, o.stream))
		s.dropped = true
		return err
	}
	for _, r := range ranges {
		key := pageOf{k, layer, r.Page}
		o.index[key] = append(o.index[key], s)
	}
	o.stagedLayers++
	return nil
}

// aligned is a size in the ring.
func aligned(bytes int) int { return (bytes + 255) / 256 * 256 }

// pack gives the stream the kernel that packs the ranges of an entry, whose list lies at its start.
func (o *outgoing) pack(d *Device, s *staged, what listed, packed driver.Pointer) error {
	ints(o.ring[s.at:], what.words)
	at := o.device + driver.Pointer(s.at)
	pack := kernels.PackPages{Packed: uint64(packed), Layer: s.pool.layer(s.layer),
		Ranges: uint64(at), Count: len(s.ranges), Shape: s.pool.shape}.Pack()
	if err := d.driver.CopyIn(at, o.ring[s.at:][:4*len(what.words)], o.stream); err != nil {
		return err
	}
	return d.driver.Launch(o.stream, d.launch(&pack))
}

// place finds room in the ring behind the youngest entry, and an event.
func (o *outgoing) place(d *Device, s *staged) (bool, error) {
	for len(o.entries) > 0 {
		oldest := o.entries[0]
		if !oldest.dropped || oldest.readers > 0 {
			break
		}
		done, err := d.driver.Done(oldest.event)
		if err != nil {
			return false, err
		}
		if !done {
			break
		}
		o.events = append(o.events, oldest.event)
		o.entries = o.entries[1:]
	}
	var ok bool
	if s.at, ok = o.fit(s.len); !ok {
		return false, nil
	}
	var err error
	if n := len(o.events); n > 0 {
		s.event, o.events = o.events[n-1], o.events[:n-1]
	} else if s.event, err = d.driver.NewEvent(false); err != nil {
		return false, err
	}
	o.entries = append(o.entries, s)
	return true, nil
}

// fit is where so many bytes are free behind the youngest entry, or at the ring's start.
func (o *outgoing) fit(bytes int) (int, bool) {
	if len(o.entries) == 0 {
		return 0, bytes <= len(o.ring)
	}
	first, last := o.entries[0], o.entries[len(o.entries)-1]
	at, end := last.at+last.len, len(o.ring)
	if last.at < first.at { // it went round
		end = first.at
	}
	if at+bytes <= end {
		return at, true
	}
	return 0, last.at >= first.at && bytes <= first.at
}

// take copies a range from pinned memory if it was staged.
func (o *outgoing) take(d *Device, k *kv, r gpu.KVRange, dst []byte) (bool, error) {
	o.mu.Lock()
	s, from := o.find(k, r)
	if s != nil {
		s.readers++
	}
	o.mu.Unlock()
	if s == nil {
		return false, nil
	}
	err := d.bound(func() error { return d.driver.Sync(s.event) })
	if err == nil {
		side := k.shape.TokenBytes() / 2
		whole := s.ranges[from]
		at := s.data
		for _, before := range s.ranges[:from] {
			at += before.Count * 2 * side
		}
		skip := (r.First - whole.First) * side
		copy(dst[:r.Count*side], o.ring[at+skip:])
		copy(dst[r.Count*side:], o.ring[at+whole.Count*side+skip:])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.readers--
	if s.unread -= len(dst); s.unread <= 0 || err != nil {
		o.drop(s)
	}
	return err == nil, err
}

// find is the staged entry that holds a range, and which of its ranges does.
func (o *outgoing) find(k *kv, r gpu.KVRange) (*staged, int) {
	for _, s := range o.index[pageOf{k, r.Layer, r.Page}] {
		for i, whole := range s.ranges {
			if whole.Page == r.Page && whole.First <= r.First &&
				r.First+r.Count <= whole.First+whole.Count {
				return s, i
			}
		}
	}
	return nil, 0
}

// drop takes an entry out of the index; its room comes free when it is the oldest.
func (o *outgoing) drop(s *staged) {
	if s.dropped {
		return
	}
	s.dropped = true
	for _, r := range s.ranges {
		key := pageOf{s.pool, s.layer, r.Page}
		kept := o.index[key][:0]
		for _, other := range o.index[key] {
			if other != s {
				kept = append(kept, other)
			}
		}
		if o.index[key] = kept; len(kept) == 0 {
			delete(o.index, key)
		}
	}
}

// overwritten drops what is staged of slots that get a new owner.
func (o *outgoing) overwritten(k *kv, layer int, slots []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.index) == 0 {
		return
	}
	for _, slot := range slots {
		size := k.shape.PageSize
		o.forget(k, gpu.KVRange{Layer: layer, Page: int(slot) / size, First: int(slot) % size,
			Count: 1})
	}
}

func (o *outgoing) rangeOverwritten(k *kv, r gpu.KVRange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forget(k, r)
}

func (o *outgoing) pageOverwritten(k *kv, page int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for layer := range k.shape.Layers {
		o.forget(k, gpu.KVRange{Layer: layer, Page: page, Count: k.shape.PageSize})
	}
}

// forget drops the entries that share a slot with a range.
func (o *outgoing) forget(k *kv, r gpu.KVRange) {
	for _, s := range append([]*staged(nil), o.index[pageOf{k, r.Layer, r.Page}]...) {
		for _, own := range s.ranges {
			if own.Page == r.Page && own.First < r.First+r.Count &&
				r.First < own.First+own.Count {
				o.drop(s)
				break
			}
		}
	}
}
