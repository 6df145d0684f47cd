package fake

import (
	"slices"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// memory is the device's: allocations at addresses that never come again.
type memory struct {
	blocks []block // by address
	next   driver.Pointer
	left   int64
}

type block struct {
	at      driver.Pointer
	data    []byte
	foreign bool // of another process, which lent it
}

// poison fills fresh memory: every float of any type is a NaN.
const poison = 0xff

// at is so many bytes of one allocation, nil where they are not.
func (m *memory) at(p driver.Pointer, bytes int64) []byte {
	i, ok := slices.BinarySearchFunc(m.blocks, p, func(b block, p driver.Pointer) int {
		switch {
		case p < b.at:
			return 1
		case p > b.at && p >= b.at+driver.Pointer(len(b.data)):
			return -1
		}
		return 0
	})
	if !ok || bytes < 0 {
		return nil
	}
	b := m.blocks[i]
	offset := int64(p - b.at)
	if offset+bytes > int64(len(b.data)) {
		return nil
	}
	return b.data[offset:][:bytes]
}

// Alloc implements driver.Memory.
func (f *Driver) Alloc(bytes int64) (driver.Pointer, error) {
	if err := f.call("cuMemAlloc"); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes <= 0 {
		return 0, driver.Check("cuMemAlloc", invalidValue)
	}
	if bytes > f.memory.left {
		return 0, driver.Check("cuMemAlloc", outOfMemory)
	}
	f.memory.left -= bytes
	return f.memory.add(slices.Repeat([]byte{poison}, int(bytes)), false), nil
}

// add gives memory an address.
func (m *memory) add(data []byte, foreign bool) driver.Pointer {
	if m.next == 0 {
		m.next = 1 << 40
	}
	b := block{m.next, data, foreign}
	const gap = 1 << 16 // that no address reaches over by mistake
	m.next += driver.Pointer((len(data)+gap)/256*256 + gap)
	m.blocks = append(m.blocks, b)
	return b.at
}

// Free implements driver.Memory.
func (f *Driver) Free(p driver.Pointer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data := f.memory.drop(p, false)
	if data == nil {
		return driver.Check("cuMemFree", invalidValue)
	}
	f.memory.left += int64(len(data))
	return nil
}

// drop takes away what starts at an address; nil: nothing of the kind does.
func (m *memory) drop(p driver.Pointer, foreign bool) []byte {
	i := slices.IndexFunc(m.blocks, func(b block) bool { return b.at == p })
	if i < 0 || m.blocks[i].foreign != foreign {
		return nil
	}
	data := m.blocks[i].data
	m.blocks = slices.Delete(m.blocks, i, i+1)
	return data
}

// Available implements driver.Memory.
func (f *Driver) Available() (free, total int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory.left, f.options.Memory, nil
}

// AllocHost implements driver.Host.
func (f *Driver) AllocHost(bytes int) ([]byte, error) {
	if err := f.call("cuMemAllocHost"); err != nil {
		return nil, err
	}
	if bytes <= 0 {
		return nil, driver.Check("cuMemAllocHost", invalidValue)
	}
	memory := slices.Repeat([]byte{poison}, bytes)
	f.pin(memory, 1)
	return memory, nil
}

// FreeHost implements driver.Host.
func (f *Driver) FreeHost(memory []byte) error { return f.unpin("cuMemFreeHost", memory) }

// Register implements driver.Host.
func (f *Driver) Register(memory []byte) error {
	if err := f.call("cuMemHostRegister"); err != nil {
		return err
	}
	if len(memory) == 0 || f.isPinned(memory) {
		return driver.Check("cuMemHostRegister", alreadyRegistered)
	}
	f.pin(memory, 1)
	return nil
}

// Unregister implements driver.Host.
func (f *Driver) Unregister(memory []byte) error { return f.unpin("cuMemHostUnregister", memory) }

// last is the byte that tells host memory and all parts of it, whose capacity reaches to its end.
func last(memory []byte) *byte { return &memory[:cap(memory)][cap(memory)-1] }

func (f *Driver) pin(memory []byte, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pinned[last(memory)] += n
}

func (f *Driver) unpin(call string, memory []byte) error {
	if len(memory) == 0 || !f.isPinned(memory) {
		return driver.Check(call, notRegistered)
	}
	f.pin(memory, -1)
	return nil
}

func (f *Driver) isPinned(memory []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pinned[last(memory)] > 0
}

// The copy engines.
const (
	copyIn = iota + 1
	copyOut
)

// CopyIn implements driver.Copies. The host's memory is read when the copy runs, as from pinned
// memory.
func (f *Driver) CopyIn(to driver.Pointer, from []byte, s driver.Stream) error {
	return f.give("cuMemcpyHtoDAsync", s, work{what: "copy in", engine: copyIn,
		cost: copyTime(len(from), linkRate), run: func(*stream) int {
			dst := f.memory.at(to, int64(len(from)))
			if dst == nil || f.pinned[last(from)] == 0 {
				return illegalAddress
			}
			copy(dst, from)
			return 0
		}})
}

// CopyOut implements driver.Copies.
func (f *Driver) CopyOut(to []byte, from driver.Pointer, s driver.Stream) error {
	return f.give("cuMemcpyDtoHAsync", s, work{what: "copy out", engine: copyOut,
		cost: copyTime(len(to), f.options.OutRate), run: func(*stream) int {
			src := f.memory.at(from, int64(len(to)))
			if src == nil || f.pinned[last(to)] == 0 {
				return illegalAddress
			}
			copy(to, src)
			return 0
		}})
}

// copyTime is the virtual time of a copy: a microsecond and its bytes.
func copyTime(bytes int, rate float64) float64 { return float64(bytes)/rate + 1e-6 }

// CopyWithin implements driver.Copies.
func (f *Driver) CopyWithin(to, from driver.Pointer, bytes int64, s driver.Stream) error {
	return f.give("cuMemcpyDtoDAsync", s, work{what: "copy within", cost: f.options.KernelTime,
		run: func(*stream) int {
			dst, src := f.memory.at(to, bytes), f.memory.at(from, bytes)
			if dst == nil || src == nil {
				return illegalAddress
			}
			copy(dst, src)
			return 0
		}})
}

// Fill implements driver.Copies.
func (f *Driver) Fill(to driver.Pointer, value byte, bytes int64, s driver.Stream) error {
	return f.give("cuMemsetD8Async", s, work{what: "fill", cost: f.options.KernelTime,
		run: func(*stream) int {
			dst := f.memory.at(to, bytes)
			if dst == nil {
				return illegalAddress
			}
			for i := range dst {
				dst[i] = value
			}
			return 0
		}})
}
