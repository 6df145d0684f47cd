//go:build unix

package nearby

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func kinds() []Kind {
	if HasShared {
		return []Kind{Unix, Shared}
	}
	return []Kind{Unix}
}

// folder is short: the path of a socket has little room.
func folder(t testing.TB) string {
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// meet is both ends of a connection.
func meet(t testing.TB, kind Kind) (near, far net.Conn) {
	t.Helper()
	dir := folder(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, done := make(chan net.Conn, 1), make(chan struct{})
	go func() {
		defer close(done)
		l.Serve(func(conn net.Conn) { got <- conn })
	}()
	near, err = Dial(context.Background(), dir, l.Name(), kind)
	if err != nil {
		t.Fatal(err)
	}
	far = <-got
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("left in the folder: %v", left)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return near, far
}

func each(t *testing.T, f func(t *testing.T, near, far net.Conn)) {
	t.Run("pipe", func(t *testing.T) {
		near, far := Pipe()
		defer near.Close()
		defer far.Close()
		f(t, near, far)
	})
	for _, kind := range kinds() {
		t.Run(string(kind), func(t *testing.T) {
			near, far := meet(t, kind)
			f(t, near, far)
		})
	}
}

// Bytes arrive as they were written, both ways at once, in pieces of any size.
func TestCarriesBothWays(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		const size = 5<<20 + 17
		var work sync.WaitGroup
		for i, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			text := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(text)
			work.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for rest := text; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(1<<(1+r.IntN(20))))
					if k, err := pair[0].Write(rest[:n]); err != nil || k != n {
						t.Errorf("write %d of %d: %v", k, n, err)
						return
					}
					rest = rest[n:]
				}
			})
			work.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 2))
				got := make([]byte, 0, size)
				for len(got) < size {
					n := min(size-len(got), 1+r.IntN(1<<(1+r.IntN(20))))
					k, err := pair[1].Read(got[len(got) : len(got)+n])
					if err != nil {
						t.Errorf("read after %d: %v", len(got), err)
						return
					}
					got = got[:len(got)+k]
				}
				if !bytes.Equal(got, text) {
					t.Error("other bytes arrived")
				}
			})
		}
		work.Wait()
	})
}

// What was written before the other end closed is read, then comes the end.
func TestEndComesAfterTheBytes(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		if _, err := near.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		near.Close()
		got, err := io.ReadAll(far)
		if string(got) != "last words" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		for range 2 { // The first may still be taken by the system.
			if _, err = far.Write(make([]byte, 4<<20)); err != nil {
				return
			}
		}
		t.Fatal("wrote to nobody")
	})
}

func TestDeadlines(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		_ = near.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		n, err := 0, error(nil)
		for patience := 5 * time.Millisecond; n == 0 && patience < time.Minute; patience *= 4 {
			_ = near.SetWriteDeadline(time.Now().Add(patience)) // It may be over before the write.
			n, err = near.Write(make([]byte, 8<<20))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 8<<20 {
			t.Fatalf("write: %d, %v", n, err)
		}
		_ = near.SetDeadline(time.Time{})
		go io.Copy(io.Discard, far)
		if n, err := near.Write(make([]byte, 8<<20)); n != 8<<20 || err != nil {
			t.Fatalf("write again: %d, %v", n, err)
		}
		if _, err := far.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
		if n, err := near.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Fatalf("read again: %d, %v", n, err)
		}
	})
}

// A deadline set meanwhile, and a close, wake who waits.
func TestWakesWhoWaits(t *testing.T) {
	each(t, func(t *testing.T, near, far net.Conn) {
		failed := make(chan error)
		read := func() {
			_, err := near.Read(make([]byte, 1))
			failed <- err
		}
		go read()
		_ = near.SetReadDeadline(time.Unix(1, 0))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		_ = near.SetReadDeadline(time.Time{})
		go read()
		near.Close()
		if err := <-failed; err == nil {
			t.Fatal("read from a closed connection")
		}
		if _, err := near.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("write to a closed connection: %v", err)
		}
	})
}

func TestFolderMustBePrivate(t *testing.T) {
	dir := folder(t)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Fatalf("listen: %v", err)
	}
	name := "kv-0123456789abcdef.sock"
	if _, err := Dial(t.Context(), dir, name, Unix); err == nil ||
		!strings.Contains(err.Error(), "0700") {
		t.Fatalf("dial: %v", err)
	}
	link := filepath.Join(folder(t), "link")
	if err := os.Symlink(folder(t), link); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(link); err == nil {
		t.Fatal("listened in a folder that somebody else's link chose")
	}
}

// What a peer says is no path.
func TestNamesAreNoPaths(t *testing.T) {
	dir := folder(t)
	for _, name := range []string{"", ".", "../kv-0123456789abcdef.sock", "/etc/passwd",
		"kv-0123456789abcdef.sock/..", "kv-0123456789ABCDEF.sock", "kv-0123456789abcdef.sock\n"} {
		if _, err := Dial(t.Context(), dir, name, Unix); err == nil ||
			!strings.Contains(err.Error(), "not the name of a socket") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A process that died leaves its socket; the next one that listens removes it, and no live one.
func TestSweepsUpAfterTheDead(t *testing.T) {
	dir := folder(t)
	dead := filepath.Join(dir, "kv-00000000000000dd.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	first, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	go first.Serve(func(conn net.Conn) { conn.Close() })
	second, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 {
		t.Fatalf("left: %v", left)
	}
	first.Close()
	second.Close()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// Close ends what has not said what it wants.
func TestCloseEndsGreetings(t *testing.T) {
	dir := folder(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Serve(func(net.Conn) { t.Error("handled a connection without a greeting") })
	}()
	mute, err := net.Dial("unix", filepath.Join(dir, l.Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	l.Close()
	<-done
}

func TestRefusesOddGreetings(t *testing.T) {
	dir := folder(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go l.Serve(func(net.Conn) { t.Error("handled a connection with an odd greeting") })
	for _, greeting := range []byte{0, 'G', 0xf7, greetShared} {
		conn, err := net.Dial("unix", filepath.Join(dir, l.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte{greeting})
		answer, _ := io.ReadAll(conn)
		if string(answer) != string(rune(greetNo)) {
			t.Errorf("%q: %q", greeting, answer)
		}
		conn.Close()
	}
	if _, err := Dial(t.Context(), dir, l.Name(), "carrier pigeon"); err == nil {
		t.Error("dialled a kind that there is not")
	}
}

func BenchmarkCarry(b *testing.B) {
	for _, kind := range kinds() {
		b.Run(string(kind), func(b *testing.B) {
			near, far := meet(b, kind)
			text := make([]byte, 256<<10)
			b.SetBytes(int64(len(text)))
			done := make(chan error)
			go func() {
				buf := make([]byte, len(text))
				for range b.N {
					if _, err := io.ReadFull(far, buf); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			for range b.N {
				if _, err := near.Write(text); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
