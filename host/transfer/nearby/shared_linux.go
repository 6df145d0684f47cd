package nearby

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The memory of a connection: a page for the heads of both rings, the ring that carries what the
// dialler says, and a small one for the answers.
const (
	headBytes   = 4096
	thereBytes  = 1 << 20
	backBytes   = 64 << 10
	sharedBytes = headBytes + thereBytes + backBytes
)

// seals keep the memory as large as it is: a peer that shrank it would kill who reads it.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// HasShared says whether this system has shared memory as the package wants it.
const HasShared = true

// offer makes the memory and a second socket for its bells, and hands both to the peer with the
// greeting.
func offer(conn *net.UnixConn, greeting byte) (net.Conn, error) {
	fd, err := unix.MemfdCreate("kv", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "kv")
	defer file.Close()
	if err := file.Truncate(sharedBytes); err != nil {
		return nil, fmt.Errorf("size shared memory: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal shared memory: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "bell")
	defer theirs.Close()
	back, err := connOf(os.NewFile(uintptr(pair[0]), "bell"))
	if err != nil {
		return nil, err
	}
	c, err := mapped(file, bells{conn, back}, true)
	if err != nil {
		back.Close()
		return nil, err
	}
	rights := unix.UnixRights(int(file.Fd()), int(theirs.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{greeting}, rights, nil); err != nil {
		c.Close()
		return nil, fmt.Errorf("hand over shared memory: %w", err)
	}
	return c, nil
}

// adopt takes the memory and the second socket that a peer handed over.
func adopt(conn *net.UnixConn, handles []*os.File) (net.Conn, error) {
	defer closeAll(handles)
	if len(handles) != 2 {
		return nil, fmt.Errorf("%d files came with shared memory", len(handles))
	}
	file := handles[0]
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at shared memory: %w", err)
	}
	held, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || held&seals != seals || info.Size() != sharedBytes {
		return nil, fmt.Errorf("%d bytes with seals %#x are not the shared memory expected: %w",
			info.Size(), held, errors.Join(err, errDamaged))
	}
	back, err := connOf(handles[1])
	if err != nil {
		return nil, err
	}
	c, err := mapped(file, bells{conn, back}, false)
	if err != nil {
		back.Close()
		return nil, err
	}
	return c, nil
}

// connOf is the socket in file, which it closes.
func connOf(file *os.File) (*net.UnixConn, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("take a socket: %w", err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("a socket that is no unix socket")
	}
	return socket, nil
}

// bells are the sockets of the two rings: there carries what the dialler writes.
type bells struct{ there, back *net.UnixConn }

func mapped(file *os.File, b bells, dialler bool) (*sharedConn, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, sharedBytes,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	there := newRing(memory[:ringHead], memory[headBytes:][:thereBytes])
	back := newRing(memory[ringHead:2*ringHead], memory[headBytes+thereBytes:])
	c := &sharedConn{
		local: b.there.LocalAddr(), remote: b.there.RemoteAddr(),
		unmap: func() error { return unix.Munmap(memory) },
	}
	c.lent = lending{marks: newMarks(memory[:headBytes]), dialler: dialler}
	c.in = half{ring: there, bell: newSocketBell(b.there)}
	c.out = half{ring: back, bell: newSocketBell(b.back)}
	if dialler {
		c.in.ring, c.out.ring = back, there
		c.in.bell, c.out.bell = c.out.bell, c.in.bell
	}
	return c, nil
}

// socketBell rings by a byte on a socket.
type socketBell struct {
	*net.UnixConn
	heard [64]byte
}

func newSocketBell(conn *net.UnixConn) *socketBell { return &socketBell{UnixConn: conn} }

var ding = []byte{1}

// Ring implements bell: what does not fit into the socket is not needed, for it is full of rings.
func (b *socketBell) Ring() {
	raw, err := b.SyscallConn()
	if err != nil {
		return // Closed: nobody waits.
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Sendto(int(fd), ding, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	})
}

// Wait implements bell.
func (b *socketBell) Wait() error {
	_, err := b.Read(b.heard[:])
	return err
}

// receive reads a greeting and the files that came with it, two at most; more are closed by the
// system, which has no room to put them.
func receive(conn *net.UnixConn) (greeting byte, files []*os.File, err error) {
	var one [1]byte
	control := make([]byte, unix.CmsgSpace(2*4))
	n, used, _, _, err := conn.ReadMsgUnix(one[:], control)
	if err != nil {
		return 0, nil, fmt.Errorf("read a greeting: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:used])
	if err != nil {
		return 0, nil, fmt.Errorf("read what came with a greeting: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
		if err != nil {
			closeAll(files)
			return 0, nil, fmt.Errorf("read the files of a greeting: %w", err)
		}
	}
	if n != 1 {
		closeAll(files)
		return 0, nil, errors.New("no greeting")
	}
	return one[0], files, nil
}

// ours says whether the process at the other end is of our user, and which it is.
func ours(conn *net.UnixConn) (process int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look at the peer: %w", err)
	}
	var who *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		who, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, fmt.Errorf("look at the peer: %w", err)
	}
	if int(who.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("the peer is of user %d, we are %d", who.Uid, os.Geteuid())
	}
	return int(who.Pid), nil
}

// hand sends one byte, and a file if there is one.
func hand(conn *net.UnixConn, answer byte, file *os.File) error {
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err := conn.WriteMsgUnix([]byte{answer}, rights, nil)
	return err
}
