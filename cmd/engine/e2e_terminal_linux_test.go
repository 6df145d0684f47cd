package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/tokenizer"
)

// terminal is the engine on a pseudo terminal, with a user at the other end.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	shown  *transcript
	seen   int // bytes of shown that a wait has passed
	done   chan struct{}
}

// onTerminal starts the engine so that its stdin, stdout and stderr are one terminal.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	master, slave := openTerminal(t)
	p := &terminal{t: t, cmd: exec.Command(program, args...), master: master,
		shown: newTranscript(), done: make(chan struct{})}
	p.cmd.Env = environment(t)
	for _, name := range []string{"HF_ENDPOINT", "HF_HUB_CACHE"} {
		if value, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+value)
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	read := make(chan struct{})
	go func() {
		// Linux may say that the other end is closed before it has moved the last bytes here: they
		// come with the next read.
		buffer := make([]byte, 4096)
		for closed := 0; closed < 2; {
			n, err := master.Read(buffer)
			_, _ = p.shown.Write(buffer[:n])
			if err != nil {
				closed++
			}
		}
		close(read)
	}()
	go func() {
		_ = p.cmd.Wait()
		<-read
		p.shown.end()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // It may have ended.
		<-p.done
		master.Close()
		if t.Failed() {
			t.Logf("engine %s\n%s", strings.Join(args, " "), lastLines(p.shown.String()))
		}
	})
	return p
}

// openTerminal makes a pseudo terminal of 80 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number, problem := 0, error(nil)
	err = raw.Control(func(fd uintptr) {
		if problem = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); problem != nil {
			return
		}
		size := &unix.Winsize{Row: 24, Col: 80}
		if problem = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size); problem == nil {
			number, problem = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if problem == nil {
			problem = keepOutput(int(fd))
		}
	})
	if err != nil || problem != nil {
		t.Fatal(err, problem)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// keepOutput lets what is on its way to the master survive an interrupt: after the signal, Linux
// empties the queue, which may hold what the program has already said to it.
func keepOutput(fd int) error {
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Lflag |= unix.NOFLSH
	return unix.IoctlSetTermios(fd, unix.TCSETS, settings)
}

// await waits for a pattern behind what was awaited before, and returns its submatches.
func (p *terminal) await(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(`(?s)` + pattern)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		p.shown.mu.Lock()
		rest, changed, ended := p.shown.text.String()[p.seen:], p.shown.changed, p.shown.ended
		p.shown.mu.Unlock()
		if at := re.FindStringIndex(rest); at != nil {
			p.seen += at[1]
			return re.FindStringSubmatch(rest)
		}
		if ended {
			p.t.Fatalf("%q was not shown: the process has ended, %v", pattern, p.cmd.ProcessState)
		}
		select {
		case <-changed:
		case <-timer.C:
			p.t.Fatalf("%q was not shown", pattern)
		}
	}
}

// typing answers the next prompt.
func (p *terminal) typing(keys string) {
	p.t.Helper()
	p.await(`(?:>>>|\.\.\.) `)
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the end and wants that exit code.
func (p *terminal) ends(code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatal("the process did not end")
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d (%v), want %d", got, p.cmd.ProcessState, code)
	}
}

// chatPrompt is a conversation as token ids, and its text.
func chatPrompt(t *testing.T, words ...string) []int32 {
	t.Helper()
	tok, err := tokenizer.Load(embedded.FS())
	if err != nil {
		t.Fatal(err)
	}
	template, err := tok.ChatTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	var turns []tokenizer.Message
	for i, text := range words {
		turns = append(turns, tokenizer.Message{Role: []string{"user", "assistant"}[i%2],
			Content: text})
	}
	text, err := template.Render(tokenizer.MessagesJSON(turns),
		tokenizer.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	return tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
}

// TestChatOnATerminal talks to the embedded model through both engines: the answers are those of
// the same prompts alone, although the second turn finds the first one's keys and values.
func TestChatOnATerminal(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	flags := []string{"run", "--temperature", "0", "--max-tokens", "12"}
	alone := func(prompt []int32) document {
		args := append(append([]string{}, flags...), "--json", "--token-ids", joinIDs(prompt))
		got := invoke(t, "", args...)
		if got.code != 0 {
			t.Fatal(got)
		}
		return oneDocument(t, got.out)
	}
	p := onTerminal(t, flags...)
	p.await("chat     /help")
	p.typing("In the beginning\n")
	first := chatPrompt(t, "In the beginning")
	want := alone(first)
	p.await(regexp.QuoteMeta(strings.ReplaceAll(want.Text, "\n", "\r\n") + "\r\n"))
	p.await("max_tokens is 12")
	p.typing("And then\n")
	second := chatPrompt(t, "In the beginning", want.Text, "And then")
	p.await(regexp.QuoteMeta(strings.ReplaceAll(alone(second).Text, "\n", "\r\n") + "\r\n"))
	p.typing("/stats\n")
	stats := p.await(`last +(\d+) → 12 tokens \(length\) .* cached (\d+)\r\n`)
	var prompt, cached int
	if _, err := fmt.Sscan(stats[1]+" "+stats[2], &prompt, &cached); err != nil {
		t.Fatal(err)
	}
	if prompt != len(second) || cached < len(first) {
		t.Errorf("the prompt has %d tokens and %d were cached; want %d, and at least the %d of "+
			"the first turn", prompt, cached, len(second), len(first))
	}
	p.await(`prefill  1 chunk · kv [1-9][\d.]* KiB sent`)
	p.typing(strings.Repeat("word ", 700) + "\n")
	p.await(`the conversation has \d{3,4} tokens, but the context has 512`)
	p.typing(strings.Repeat("x", 5000) + "\n")
	p.await("a terminal keeps 4095 bytes of a line")
	p.typing("/quit\n")
	p.ends(0)
}

// TestChatIsInterrupted presses Ctrl-C while an answer comes. One that is over before is tried
// again with another.
func TestChatIsInterrupted(t *testing.T) {
	p := onTerminal(t, "run", "--ignore-eos")
	for stopped := false; !stopped; {
		p.typing("In the beginning\n")
		p.await(`In the beginning\r\n.`)
		if _, err := p.master.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		end := p.await(`stopped after \d+ tokens?|Ctrl-C again leaves|512 tokens is full`)
		stopped = strings.Contains(end[0], "stopped after")
		p.typing("/new\n")
		p.await("0 turns")
	}
	p.typing("hi\n") // The loop goes on.
	p.typing("\x03")
	p.typing("\x03")
	p.ends(0)
	p = onTerminal(t, "run")
	p.typing("\x04")
	p.ends(0)
}

func TestTerminalsAndNullDevices(t *testing.T) {
	master, slave := openTerminal(t)
	defer master.Close()
	defer slave.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !isTerminal(slave) || isTerminal(null) || isTerminal(file) ||
		isTerminal(strings.NewReader("")) {
		t.Errorf("terminal %v, %s %v, file %v", isTerminal(slave), os.DevNull, isTerminal(null),
			isTerminal(file))
	}
	p := onTerminal(t, "run", "--json")
	p.await("--json needs a prompt")
	p.ends(exitUsage)
}

// TestPullOnATerminal shows bars that stay within the terminal's width.
func TestPullOnATerminal(t *testing.T) {
	cache := serveEmbedded(t)
	p := onTerminal(t, "pull", "acme/embedded")
	p.await(`5 files +\[=+\] [^\n]*B/s.*acme/embedded 0123456\r\n  5 files fetched and verified`)
	p.ends(0)
	for line := range strings.SplitSeq(p.shown.String(), "\n") {
		line = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`).ReplaceAllString(line, "")
		n := len([]rune(strings.TrimRight(line, "\r")))
		if n > 80 && !strings.Contains(line, cache) {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
}

// TestPullIsInterrupted presses Ctrl-C while bars are shown.
func TestPullIsInterrupted(t *testing.T) {
	serveEmbedded(t)
	p := onTerminal(t, "pull", "acme/slow")
	p.await(`5 files .* KiB / 2\.7 MiB`)
	if _, err := p.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	p.await("error: stopped; the same command goes on from what is here")
	p.ends(exitFailed)
}
