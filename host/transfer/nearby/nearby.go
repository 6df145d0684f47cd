// Package nearby connects two processes of one user on one host faster than TCP: over a unix
// socket in a private folder, or over shared memory that such a socket hands over. Both are
// net.Conns.
//
// What always holds:
//
//  1. A folder is used only if it is ours and nobody else may look into it; a name in it is one
//     that Listen made up. What a peer says never becomes a path by itself.
//  2. Where the system says who the peer is, it is a process of our own user.
//  3. Shared memory cannot be shrunk under us, and nothing read from it is believed: a position
//     that cannot be ends the connection.
//  4. Nobody spins: who waits sleeps in a read of a socket, which the other end's death ends.
package nearby

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// Kind is a way to connect.
type Kind string

// The kinds.
const (
	Unix   Kind = "unix"
	Shared Kind = "shm"
)

// Limits of a listener; none is a setting.
const (
	mostConnections = 1024
	greetTime       = 2 * time.Second
	// mostPath is the longest path of a socket that every system takes.
	mostPath = 103
)

// socketName is what Listen calls its sockets.
var socketName = regexp.MustCompile(`^kv-[0-9a-f]{16}\.sock$`)

// greetings: the first byte of a connection, and its answer.
const (
	greetUnix   = 'U'
	greetShared = 'S'
	greetLoan   = 'L'
	greetYes    = 'Y'
	greetNo     = 'N'
)

// Listener takes connections in a private folder. It is safe for concurrent use.
type Listener struct {
	socket *net.UnixListener
	path   string
	places chan struct{}
	work   sync.WaitGroup
	lender Lender

	mu      sync.Mutex // guards what follows
	greeted map[net.Conn]bool
	closed  bool
}

// Listen makes a socket in folder, which is made if need be, and removes those of processes that
// died. The error says what is wrong with the folder.
func Listen(folder string) (*Listener, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for sockets: %w", err)
	}
	if err := private(folder); err != nil {
		return nil, err
	}
	sweep(folder)
	var random [8]byte
	_, _ = rand.Read(random[:]) // It never fails.
	path := filepath.Join(folder, "kv-"+hex.EncodeToString(random[:])+".sock")
	if len(path) > mostPath {
		return nil, fmt.Errorf("a socket in %s has a path of more than %d bytes", folder, mostPath)
	}
	// It gets its name when it listens: a socket under its name that nobody answers is a dead one.
	early := path + "~"
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: early, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", folder, err)
	}
	socket.SetUnlinkOnClose(false)
	if err := os.Rename(early, path); err != nil {
		socket.Close()
		return nil, fmt.Errorf("name the socket in %s: %w", folder, err)
	}
	return &Listener{
		socket: socket, path: path, places: make(chan struct{}, mostConnections),
		greeted: map[net.Conn]bool{},
	}, nil
}

// sweep removes sockets that nobody listens to any more. One that does not go is left.
func sweep(folder string) {
	for _, pattern := range []string{"kv-*.sock", "kv-*.sock~"} {
		paths, _ := filepath.Glob(filepath.Join(folder, pattern)) // The pattern is right.
		for _, path := range paths {
			conn, err := net.DialTimeout("unix", path, greetTime)
			if err == nil {
				conn.Close()
			} else if refusedBy(err) && stale(path) {
				_ = os.Remove(path)
			}
		}
	}
}

// stale says whether a socket is old enough not to be one that is just being made.
func stale(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && (filepath.Ext(path) == ".sock" || time.Since(info.ModTime()) > time.Minute)
}

// Lend lets connections have a loan. It is called before Serve.
func (l *Listener) Lend(from Lender) { l.lender = from }

// Name is what a peer must be told to find the socket in its own folder.
func (l *Listener) Name() string { return filepath.Base(l.path) }

// Serve gives each connection to handle, which closes it, in a goroutine of its own until Close.
// It returns when all of them have.
func (l *Listener) Serve(handle func(net.Conn)) {
	defer l.work.Wait()
	for {
		l.places <- struct{}{}
		conn, err := l.socket.AcceptUnix()
		if err != nil && errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // Too many open files, say.
			<-l.places
			time.Sleep(10 * time.Millisecond)
			continue
		}
		l.work.Go(func() {
			defer func() { <-l.places }()
			if greeted, err := l.greet(conn); err == nil {
				handle(greeted)
			}
		})
	}
}

// greet finds out which kind the peer wants, and answers.
func (l *Listener) greet(conn *net.UnixConn) (_ net.Conn, err error) {
	if !l.watch(conn, true) {
		conn.Close()
		return nil, net.ErrClosed
	}
	defer l.watch(conn, false)
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(greetTime))
	peer, err := ours(conn)
	if err != nil {
		return nil, err
	}
	greeting, handles, err := receive(conn)
	if err != nil {
		return nil, err
	}
	var made net.Conn = conn
	var words []byte
	var file *os.File
	if greeting == greetShared || greeting == greetLoan {
		made, err = adopt(conn, handles)
	} else if closeAll(handles); greeting != greetUnix || len(handles) > 0 {
		err = fmt.Errorf("a greeting %q with %d files", greeting, len(handles))
	}
	if err == nil && greeting == greetLoan {
		if words, file, err = hear(conn, made, l.lender, peer); err != nil {
			words = []byte(err.Error())
		}
	}
	err = errors.Join(err, answer(conn, greeting, err == nil, words, file))
	if err != nil {
		if made != nil {
			made.Close()
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return made, nil
}

// answer says yes or no to a greeting, and what there is to say about a loan.
func answer(conn *net.UnixConn, greeting byte, yes bool, words []byte, file *os.File) error {
	says := byte(greetNo)
	if yes {
		says = greetYes
	}
	err := hand(conn, says, file)
	if file != nil {
		file.Close()
	}
	if err == nil && greeting == greetLoan {
		err = writeWords(conn, words)
	}
	return err
}

// watch keeps the connections that Close has to wake.
func (l *Listener) watch(conn net.Conn, on bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on {
		l.greeted[conn] = true
	} else {
		delete(l.greeted, conn)
	}
	return !l.closed
}

// Close stops listening, removes the socket and ends the connections that have not said what they
// want. Those that were handed out are their handlers'.
func (l *Listener) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	for conn := range l.greeted {
		conn.Close()
	}
	l.mu.Unlock()
	if !first {
		return nil
	}
	return errors.Join(os.Remove(l.path), l.socket.Close())
}

// Dial connects to the socket called name in folder, both checked first.
func Dial(ctx context.Context, folder, name string, kind Kind) (net.Conn, error) {
	return dial(ctx, folder, name, func(conn *net.UnixConn) (net.Conn, error) {
		return introduce(conn, kind)
	})
}

// DialLoan connects over shared memory, with a loan.
func DialLoan(ctx context.Context, folder, name string, by Borrower) (net.Conn, error) {
	return dial(ctx, folder, name, func(conn *net.UnixConn) (net.Conn, error) {
		return borrow(conn, by)
	})
}

func dial(ctx context.Context, folder, name string,
	introduce func(*net.UnixConn) (net.Conn, error)) (net.Conn, error) {
	if !socketName.MatchString(name) {
		return nil, fmt.Errorf("%q is not the name of a socket", name)
	}
	if err := private(folder); err != nil {
		return nil, err
	}
	raw, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, name))
	if err != nil {
		return nil, fmt.Errorf("dial the socket: %w", err)
	}
	conn := raw.(*net.UnixConn)
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(greetTime)
	}
	_ = conn.SetDeadline(until)
	made, err := introduce(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return made, nil
}

// introduce says which kind it shall be, and waits for the answer.
func introduce(conn *net.UnixConn, kind Kind) (made net.Conn, err error) {
	if _, err := ours(conn); err != nil {
		return nil, err
	}
	made = conn
	switch kind {
	case Unix:
		_, err = conn.Write([]byte{greetUnix})
	case Shared:
		made, err = offer(conn, greetShared)
	default:
		err = fmt.Errorf("there is no kind %q", kind)
	}
	if err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err = io.ReadFull(conn, answer[:]); err == nil && answer[0] != greetYes {
		err = errors.New("the peer does not want it")
	}
	if err != nil {
		made.Close()
		return nil, fmt.Errorf("greet over the socket: %w", err)
	}
	return made, nil
}

// borrow introduces itself by shared memory, asks for a loan and takes it.
func borrow(conn *net.UnixConn, by Borrower) (net.Conn, error) {
	peer, err := ours(conn)
	if err != nil {
		return nil, err
	}
	made, err := offer(conn, greetLoan)
	if err != nil {
		return nil, err
	}
	if err := take(conn, made, by, peer); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

func take(conn *net.UnixConn, made net.Conn, by Borrower, peer int) error {
	if err := writeWords(conn, by.Ask()); err != nil {
		return fmt.Errorf("ask for a loan: %w", err)
	}
	answer, files, err := receive(conn)
	if err != nil {
		return err
	}
	defer closeAll(files)
	words, err := readWords(conn)
	if err != nil {
		return err
	}
	if answer != greetYes {
		return fmt.Errorf("the peer lends nothing: %q", words)
	}
	var file *os.File
	if len(files) > 0 {
		file = files[0]
	}
	loan, err := by.Borrow(words, file, peer)
	if err != nil {
		return fmt.Errorf("take a loan: %w", err)
	}
	shared, ok := made.(*sharedConn)
	if !ok {
		loan.Return(nil, nil)
		return errors.New("a loan without shared memory")
	}
	shared.lent.loan = loan
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
