package cuda

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// lane is memory that this process and another one of the machine reach: keys and values go from
// pages straight into it, or come from it, a layer in one copy.
type lane struct {
	bytes int
	// host is memory of both processes, registered with the driver. Where it is nil the lane is
	// memory of a device: of ours if it is lent, or of the other process's.
	host []byte
	// device is that memory. Of a host lane from which layers are taken it is as much memory of our
	// own, in which what arrives lies for the kernel.
	device   driver.Pointer
	borrowed bool
	far      bool // borrowed from another device

	// handle is what the lane was lent by; of is the lane of this very device that was borrowed,
	// and holders counts both ends of one: the last frees its memory. Nil and 0 of other lanes.
	handle  driver.ShareHandle
	of      *lane
	holders int

	users int // calls and copies under way
}

// lanes are known by numbers that never come again.
type lanes struct {
	mu       sync.Mutex // guards what follows
	idle     *sync.Cond // a lane lost its last user
	byNumber map[int]*lane
	last     int
}

func (s *lanes) add(l *lane) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNumber == nil {
		s.byNumber, s.idle = map[int]*lane{}, sync.NewCond(&s.mu)
	}
	s.last++
	s.byNumber[s.last] = l
	return s.last
}

// use keeps a lane from being taken away until leave.
func (s *lanes) use(number int) (*lane, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byNumber[number]
	if l == nil {
		return nil, fmt.Errorf("%w: there is no lane %d", driver.ErrRefused, number)
	}
	l.users++
	return l, nil
}

func (s *lanes) leave(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		s.idle.Broadcast()
	}
}

// remove takes a lane away once nobody uses it.
func (s *lanes) remove(number int) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byNumber[number]
	if l == nil {
		return nil
	}
	delete(s.byNumber, number)
	for l.users > 0 {
		s.idle.Wait()
	}
	return l
}

// ours is the other end of a lane that this device lent by a handle; nil: it lent none.
func (s *lanes) ours(h driver.ShareHandle, bytes int) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byNumber {
		if l.holders > 0 && l.of == nil && l.handle == h && l.bytes == bytes {
			l.holders++
			return &lane{bytes: bytes, device: l.device, borrowed: true, of: l}
		}
	}
	return nil
}

// alone says of a lane that was removed whether nobody holds its memory any more.
func (s *lanes) alone(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.of != nil {
		l = l.of
	}
	l.holders--
	return l.holders <= 0
}

// Identity tells this device apart from every other one; empty where the driver cannot.
func (d *Device) Identity() string {
	if d.info.Identity == (driver.Identity{}) {
		return ""
	}
	return hex.EncodeToString(d.info.Identity[:])
}

// Reaches says whether lanes can be borrowed from the device with that identity: from itself, or
// from another that the machine links with it.
func (d *Device) Reaches(identity string) bool {
	var id driver.Identity
	if n, err := hex.Decode(id[:], []byte(identity)); err != nil || n != len(id) {
		return false
	}
	can := false
	err := d.bound(func() (err error) {
		can, err = d.driver.Reachable(id)
		return err
	})
	return err == nil && can
}

// AttachLane makes memory that is shared with another process a lane: the device reads and writes
// it by itself from now on. It stays mapped until DetachLane. Where layers are to be taken from it,
// as much memory of the device is set aside.
func (d *Device) AttachLane(memory []byte, takes bool) (int, error) {
	l := &lane{bytes: len(memory), host: memory}
	if takes {
		var err error
		if l.device, err = d.alloc(int64(len(memory))); err != nil {
			return 0, fmt.Errorf("memory for what arrives: %w", err)
		}
	}
	err := d.bound(func() error { return d.driver.Register(memory) })
	if err != nil {
		if takes {
			d.garbage.add(l.device)
		}
		return 0, fmt.Errorf("register %d bytes of shared memory: %w", len(memory), err)
	}
	return d.lanes.add(l), nil
}

// LendLane makes device memory a lane, and a handle by which another process borrows it.
func (d *Device) LendLane(bytes int) (number int, handle []byte, err error) {
	p, err := d.alloc(int64(bytes))
	if err != nil {
		return 0, nil, fmt.Errorf("memory to lend: %w", err)
	}
	var h driver.ShareHandle
	err = d.bound(func() (err error) {
		h, err = d.driver.Share(p)
		return err
	})
	if err != nil {
		d.garbage.add(p)
		return 0, nil, fmt.Errorf("lend %d bytes of device memory: %w", bytes, err)
	}
	return d.lanes.add(&lane{bytes: bytes, device: p, handle: h, holders: 1}), h[:], nil
}

// BorrowLane makes a lane of what was lent by another process, whose device has that identity, or
// by this device: a driver opens no handle of its own process, and need not.
func (d *Device) BorrowLane(handle []byte, bytes int, identity string) (int, error) {
	var h driver.ShareHandle
	if len(handle) != len(h) {
		return 0, fmt.Errorf("%w: a handle of %d bytes", driver.ErrRefused, len(handle))
	}
	copy(h[:], handle)
	if l := d.lanes.ours(h, bytes); l != nil {
		return d.lanes.add(l), nil
	}
	l := &lane{bytes: bytes, borrowed: true, far: identity != d.Identity()}
	err := d.bound(func() (err error) {
		l.device, err = d.driver.OpenShared(h)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("borrow %d bytes of device memory: %w", bytes, err)
	}
	return d.lanes.add(l), nil
}

// DetachLane ends a lane, when what is under way in it is done. Memory that was attached may be
// unmapped afterwards.
func (d *Device) DetachLane(number int) error {
	l := d.lanes.remove(number)
	if l == nil {
		return fmt.Errorf("%w: there is no lane %d", driver.ErrRefused, number)
	}
	var err error
	switch {
	case l.host != nil:
		err = d.bound(func() error { return d.driver.Unregister(l.host) })
	case l.borrowed && l.of == nil:
		return d.bound(func() error { return d.driver.CloseShared(l.device) })
	}
	if l.device != 0 && d.lanes.alone(l) {
		d.garbage.add(l.device)
	}
	return err
}

// PokeLane writes a few bytes to a lane, and PeekLane reads some: what two processes say to prove
// that a lane is the same memory to both.
func (d *Device) PokeLane(number, at int, src []byte) error {
	return d.touch(number, at, len(src), func(l *lane) error {
		if l.host != nil {
			copy(l.host[at:], src)
			return nil
		}
		piece := d.outgoing.piece[:copy(d.outgoing.piece, src)]
		err := d.driver.CopyIn(l.device+driver.Pointer(at), piece, d.outgoing.stream)
		return errors.Join(err, d.driver.Finish(d.outgoing.stream))
	})
}

// PeekLane reads what PokeLane wrote.
func (d *Device) PeekLane(number, at int, dst []byte) error {
	return d.touch(number, at, len(dst), func(l *lane) error {
		if l.host != nil {
			copy(dst, l.host[at:])
			return nil
		}
		piece := d.outgoing.piece[:len(dst)]
		err := d.driver.CopyOut(piece, l.device+driver.Pointer(at), d.outgoing.stream)
		err = errors.Join(err, d.driver.Finish(d.outgoing.stream))
		copy(dst, piece)
		return err
	})
}

// touch runs f under the lock of the copy stream.
func (d *Device) touch(number, at, bytes int, f func(*lane) error) error {
	l, err := d.lanes.use(number)
	if err != nil {
		return err
	}
	defer d.lanes.leave(l)
	if at < 0 || bytes > directBytes || at > l.bytes-bytes {
		return fmt.Errorf("%w: bytes [%d, %d) of a lane of %d", driver.ErrRefused, at, at+bytes,
			l.bytes)
	}
	return d.bound(func() error {
		d.outgoing.mu.Lock()
		defer d.outgoing.mu.Unlock()
		return f(l)
	})
}
