package fake

import (
	"encoding/binary"
	"sync"

	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// Machine is what several drivers, each a process of its own, share: memory that one lends to
// another. Its devices reach one another's memory unless Unlinked says otherwise.
type Machine struct {
	// Unlinked says that two devices cannot reach one another's memory.
	Unlinked bool

	mu   sync.Mutex // guards what follows
	lent map[driver.ShareHandle]lent
	last uint64
}

// lent is an allocation and the process whose it is.
type lent struct {
	by   *Driver
	data []byte
}

// identity is that of device number n on every machine.
func identity(n int) (id driver.Identity) {
	copy(id[:], "fake device")
	binary.LittleEndian.PutUint32(id[12:], uint32(n))
	return id
}

// Share implements driver.Sharing.
func (f *Driver) Share(p driver.Pointer) (h driver.ShareHandle, err error) {
	m := f.options.Machine
	if err := f.call("cuIpcGetMemHandle"); err != nil {
		return h, err
	}
	if m == nil {
		return h, driver.Check("cuIpcGetMemHandle", unsupported)
	}
	f.mu.Lock()
	var data []byte
	for _, b := range f.memory.blocks {
		if b.at == p && !b.foreign {
			data = b.data
		}
	}
	f.mu.Unlock()
	if data == nil {
		return h, driver.Check("cuIpcGetMemHandle", invalidValue)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	binary.LittleEndian.PutUint64(h[:], m.last)
	if m.lent == nil {
		m.lent = map[driver.ShareHandle]lent{}
	}
	m.lent[h] = lent{f, data}
	return h, nil
}

const unsupported = 801

// OpenShared implements driver.Sharing.
func (f *Driver) OpenShared(h driver.ShareHandle) (driver.Pointer, error) {
	m := f.options.Machine
	if err := f.call("cuIpcOpenMemHandle"); err != nil {
		return 0, err
	}
	if m == nil {
		return 0, driver.Check("cuIpcOpenMemHandle", unsupported)
	}
	m.mu.Lock()
	from, ok := m.lent[h]
	m.mu.Unlock()
	if !ok || from.by == f {
		return 0, driver.Check("cuIpcOpenMemHandle", invalidValue)
	}
	if from.by.options.Device != f.options.Device && m.Unlinked {
		return 0, driver.Check("cuIpcOpenMemHandle", peerNotOn)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory.add(from.data, true), nil
}

// CloseShared implements driver.Sharing.
func (f *Driver) CloseShared(p driver.Pointer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory.drop(p, true) == nil {
		return driver.Check("cuIpcCloseMemHandle", invalidValue)
	}
	return nil
}

// Reachable implements driver.Peers.
func (f *Driver) Reachable(id driver.Identity) (bool, error) {
	m := f.options.Machine
	return id == identity(f.options.Device) || m != nil && !m.Unlinked, nil
}
