package nearby

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// hostile dials a listener with memory of its own making and says how it was answered.
func hostile(t *testing.T, size int64, with, files int) byte {
	t.Helper()
	dir := folder(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go l.Serve(func(conn net.Conn) { conn.Close() })
	raw, err := net.Dial("unix", filepath.Join(dir, l.Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fd, err := unix.MemfdCreate("odd", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "odd")
	defer memory.Close()
	if err := memory.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, with); with != 0 && err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	list := []int{fd, pair[1], fd, fd}[:files]
	if _, _, err := raw.(*net.UnixConn).WriteMsgUnix([]byte{greetShared},
		unix.UnixRights(list...), nil); err != nil {
		t.Fatal(err)
	}
	var answer [1]byte
	if _, err := io.ReadFull(raw, answer[:]); err != nil {
		t.Fatal(err)
	}
	return answer[0]
}

// Memory that could be shrunk, is of another size, or comes with more or fewer files is refused.
func TestRefusesMemoryThatCannotBeTrusted(t *testing.T) {
	before := openFiles(t)
	for name, c := range map[string]struct {
		size        int64
		with, files int
		want        byte
	}{
		"as it should be": {sharedBytes, seals, 2, greetYes},
		"not sealed":      {sharedBytes, 0, 2, greetNo},
		"half sealed":     {sharedBytes, unix.F_SEAL_GROW, 2, greetNo},
		"too small":       {headBytes, seals, 2, greetNo},
		"too large":       {2 * sharedBytes, seals, 2, greetNo},
		"one file":        {sharedBytes, seals, 1, greetNo},
	} {
		if got := hostile(t, c.size, c.with, c.files); got != c.want {
			t.Errorf("%s: %c", name, got)
		}
	}
	for range 1000 { // The listener closes what it got after it has answered.
		if openFiles(t) <= before {
			return
		}
	}
	t.Errorf("%d files open, %d before", openFiles(t), before)
}

func openFiles(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// A peer that writes positions that cannot be ends the connection, and nothing else.
func TestPositionsAreNotBelieved(t *testing.T) {
	for _, lie := range []uint64{thereBytes + 1, 1 << 40, 1 << 63} {
		near, far := meet(t, Shared)
		near.(*sharedConn).out.head.Store(lie)
		if _, err := far.Read(make([]byte, 10)); !errors.Is(err, errDamaged) {
			t.Errorf("head %d: %v", lie, err)
		}
		near, far = meet(t, Shared)
		near.(*sharedConn).in.tail.Store(lie)
		if _, err := far.Write(make([]byte, 10)); !errors.Is(err, errDamaged) {
			t.Errorf("tail %d: %v", lie, err)
		}
	}
	near, far := meet(t, Shared)
	near.(*sharedConn).out.head.Store(100) // Bytes that it never wrote: rubbish, but in the ring.
	if n, err := far.Read(make([]byte, 1000)); n != 100 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}

// FuzzPositions lets a peer write anything into the words of both rings.
func FuzzPositions(f *testing.F) {
	f.Add(uint64(1), uint64(0), uint32(1), uint32(1))
	f.Add(uint64(1<<63), uint64(5), uint32(0), uint32(7))
	f.Fuzz(func(t *testing.T, head, tail uint64, reader, writer uint32) {
		memory := make([]byte, ringHead+4096)
		r := newRing(memory[:ringHead], memory[ringHead:])
		in, out := &half{ring: r, bell: deaf{}}, &half{ring: r, bell: deaf{}}
		r.head.Store(head)
		r.tail.Store(tail)
		r.readerWaits.Store(reader)
		r.writerWaits.Store(writer)
		if n, err := out.write(make([]byte, 5000)); n > 4096 || n < 5000 && err == nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		r.head.Store(head)
		if n, err := in.read(make([]byte, 5000)); n > 4096 || n == 0 && err == nil {
			t.Fatalf("read %d, %v", n, err)
		}
	})
}

// deaf is the bell of a peer that has gone.
type deaf struct{ net.Conn }

func (deaf) Ring()       {}
func (deaf) Wait() error { return io.EOF }
