//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWhatIsNoModelIsNotOpened: a pipe that nobody writes to would hold a command for ever.
func TestWhatIsNoModelIsNotOpened(t *testing.T) {
	folder := shortDir(t)
	pipe, link := filepath.Join(folder, "pipe.gguf"), filepath.Join(folder, "link.gguf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	everywhere(t, pipe, "is a pipe: a model is a")
	everywhere(t, link, "is a pipe: a model is a")
	everywhere(t, "/dev/null", "is a device: a model is a")
	socket := filepath.Join(folder, "s.gguf")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	everywhere(t, socket, "is a socket: a model is a")
	whole := copyModel(t)
	config := filepath.Join(whole, "config.json")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(config, 0o600); err != nil {
		t.Fatal(err)
	}
	everywhere(t, whole, "config.json in "+whole+" is a pipe, not a file")
}
