package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// asEngine makes this test binary be the engine: the tests run it as processes of its own, and so
// does the demonstration, which starts the program it is.
const asEngine = "ENGINE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asEngine) == "1" {
		main()
		return
	}
	if folder := os.Getenv(asPeer); folder != "" {
		os.Exit(peerMain(folder))
	}
	if folder := os.Getenv(asLoader); folder != "" {
		os.Exit(loaderMain(folder))
	}
	os.Exit(m.Run())
}

// patience is how long anything may take that a test waits for. It says that something hangs, not
// how fast it should be.
const patience = 90 * time.Second

// sharedDir is the folder of test data outside the repository.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ENGINE_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %s", dir)
		}
		t.Skipf("shared data not found: %s", dir)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// transcript collects what a process says and lets tests wait for words.
type transcript struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed and replaced with each write
	ended   bool
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	close(s.changed)
	s.changed = make(chan struct{})
	return len(p), nil
}

// end says that nothing will follow.
func (s *transcript) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await returns the submatches of a pattern once it is there; nil if the time or the text has
// ended.
func (s *transcript) await(pattern *regexp.Regexp) []string {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		found, changed, ended := pattern.FindStringSubmatch(s.text.String()), s.changed, s.ended
		s.mu.Unlock()
		if found != nil || ended {
			return found
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		}
	}
}

// process is the engine as a process of its own.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	out, err *transcript
	done     chan struct{} // closed at the end
	failure  error         // of Wait, once done
}

// environment is that of a user who has nothing but a home.
func environment(t *testing.T) []string {
	t.Helper()
	home := shortDir(t)
	env := []string{asEngine + "=1", "HOME=" + home, "XDG_RUNTIME_DIR=" + home}
	if os.Getenv("GORACE") == "" {
		env = append(env, "GORACE=atexit_sleep_ms=0") // Else a race build takes a second to end.
	}
	for _, keep := range []string{"PATH", "TMPDIR", "GORACE", "SystemRoot", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(keep); ok {
			env = append(env, keep+"="+value)
		}
	}
	return env
}

// shortDir is a folder whose path leaves room for the name of a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// launch starts the engine with the given arguments. It is killed when the test ends.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchCommand(t, exec.Command(program, args...))
}

// launchCommand starts a command that becomes an engine.
func launchCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: newTranscript(), err: newTranscript(),
		done: make(chan struct{})}
	var err error
	p.cmd.Env = environment(t)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.failure = p.cmd.Wait()
		p.out.end()
		p.err.end()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // It may have ended.
		<-p.done
		if t.Failed() {
			t.Logf("engine %s\n%s%s", strings.Join(cmd.Args[1:], " "), p.out,
				lastLines(p.err.String()))
		}
	})
	return p
}

// lastLines is enough of a log to see what went wrong: its end, and all of a race or a panic.
func lastLines(text string) string {
	const most = 6000
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `"msg":"token sampled"`) {
			kept.WriteString(line)
		}
	}
	text = kept.String()
	for _, alarm := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if i := strings.Index(text, alarm); i >= 0 {
			return text[i:]
		}
	}
	return text[max(0, len(text)-most):]
}

// stop ends the process as closing its stdin does, and wants it to end well.
func (p *process) stop() {
	p.t.Helper()
	p.stdin.Close()
	p.wait(0)
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

// wait waits for the end and wants that exit code.
func (p *process) wait(code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the process did not end:\n%s%s", p.out, lastLines(p.err.String()))
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d (%v), want %d:\n%s", got, p.failure, code,
			lastLines(p.err.String()))
	}
}

// node is an instance that serves.
type node struct {
	*process
	file          string // its TOML
	admin         string // unix:PATH
	api, internal string // URLs; "" where it does not listen
}

// serveNode writes a TOML file, starts an instance on it and waits until it is ready. Where the
// text names no listener, the instance listens on free ports.
func serveNode(t *testing.T, text string) *node {
	t.Helper()
	n := prepareNode(t, text)
	n.process = launch(t, "serve", "-c", n.file, "--until-eof")
	n.awaitReady()
	return n
}

// prepareNode writes the file of an instance that is not started yet.
func prepareNode(t *testing.T, text string) *node {
	t.Helper()
	dir := shortDir(t)
	n := &node{file: filepath.Join(dir, "engine.toml"),
		admin: "unix:" + filepath.Join(dir, "admin.sock")}
	if !strings.Contains(text, "[listen]") {
		text += "\n[listen]\napi = \"127.0.0.1:0\"\ninternal = \"127.0.0.1:0\"\n"
	}
	n.rewrite(t, strings.Replace(text, "[listen]\n", fmt.Sprintf("[listen]\nadmin = %q\n", n.admin),
		1))
	return n
}

// rewrite replaces the file.
func (n *node) rewrite(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(n.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	readyLine    = regexp.MustCompile(`(?m)^ready\.`)
	apiLine      = regexp.MustCompile(`(?m)^  api +(https?://\S+)/v1`)
	internalLine = regexp.MustCompile(`(?m)^  internal +(\S+)`)
)

// awaitReady reads from what the instance says where it listens.
func (n *node) awaitReady() {
	n.t.Helper()
	if n.out.await(readyLine) == nil {
		n.t.Fatalf("the instance did not become ready:\n%s%s", n.out, lastLines(n.err.String()))
	}
	said := n.out.String()
	if found := apiLine.FindStringSubmatch(said); found != nil {
		n.api = found[1]
	}
	if found := internalLine.FindStringSubmatch(said); found != nil {
		n.internal = "http://" + found[1]
	}
}

// eventually asks until the answer is nil, which is what has to come true.
func eventually(t *testing.T, within time.Duration, ask func() error) {
	t.Helper()
	if err := poll(within, ask); err != nil {
		t.Fatalf("after %v still: %v", within, err)
	}
}

// poll is eventually without a test; it returns the last error.
func poll(within time.Duration, ask func() error) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil || errors.Is(err, errHopeless) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// errHopeless ends a poll: what is waited for cannot come any more.
var errHopeless = errors.New("hopeless")
