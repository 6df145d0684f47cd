package lanes

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// seals keep shared memory as large as it is: who shrank it would kill who reads it.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// shared is memory of the host that two processes map.
type shared struct {
	file   *os.File // nil at the borrower
	memory []byte
}

func newShared(bytes int) (*shared, error) {
	fd, err := unix.MemfdCreate("kv-lane", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a lane: %w", err)
	}
	file := os.NewFile(uintptr(fd), "kv-lane")
	s := &shared{file: file}
	if err = file.Truncate(int64(bytes)); err == nil {
		if _, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err == nil {
			s.memory, err = mapped(file, bytes)
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("make a lane of %d bytes: %w", bytes, err)
	}
	return s, nil
}

// duplicate is the file once more, for the peer.
func (s *shared) duplicate() (*os.File, error) {
	fd, err := unix.FcntlInt(s.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hand over a lane: %w", err)
	}
	return os.NewFile(uintptr(fd), "kv-lane"), nil
}

// openShared maps a lane that came as a file.
func openShared(file *os.File, bytes int) (*shared, error) {
	if file == nil {
		return nil, errors.New("no file came with a lane")
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at a lane: %w", err)
	}
	held, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || held&seals != seals || info.Size() != int64(bytes) {
		return nil, errors.Join(err, fmt.Errorf("%d bytes with seals %#x are not a lane of %d",
			info.Size(), held, bytes))
	}
	memory, err := mapped(file, bytes)
	if err != nil {
		return nil, fmt.Errorf("map a lane: %w", err)
	}
	return &shared{memory: memory}, nil
}

func mapped(file *os.File, bytes int) ([]byte, error) {
	return unix.Mmap(int(file.Fd()), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (s *shared) close() {
	_ = unix.Munmap(s.memory)
	if s.file != nil {
		s.file.Close()
	}
}

// gone says that a process has ended, and with it all that its device did: the system lets go of a
// process's devices before anybody is told of its end. One whose number another has got meanwhile
// passes for living, which only keeps its lanes from others.
func gone(process int) bool { return errors.Is(unix.Kill(process, 0), unix.ESRCH) }
