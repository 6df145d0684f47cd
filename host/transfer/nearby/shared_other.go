//go:build !linux

package nearby

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// HasShared says whether this system has shared memory as the package wants it.
const HasShared = false

var errNoShared = errors.New("there is no shared memory of the kind needed on this system")

func offer(*net.UnixConn, byte) (net.Conn, error) { return nil, errNoShared }

func adopt(_ *net.UnixConn, files []*os.File) (net.Conn, error) {
	closeAll(files)
	return nil, errNoShared
}

// receive reads a greeting; files do not come here.
func receive(conn *net.UnixConn) (byte, []*os.File, error) {
	var one [1]byte
	if _, err := io.ReadFull(conn, one[:]); err != nil {
		return 0, nil, fmt.Errorf("read a greeting: %w", err)
	}
	return one[0], nil, nil
}

// ours trusts the folder, which only our user may look into.
func ours(*net.UnixConn) (int, error) { return 0, nil }

// hand sends one byte; files do not go here.
func hand(conn *net.UnixConn, answer byte, _ *os.File) error {
	_, err := conn.Write([]byte{answer})
	return err
}
