package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/config"
)

// demoNode is one process of the demonstration.
type demoNode struct {
	name    string
	role    config.Role
	address string // of its internal listener; of the API on the router
	file    string
	process *exec.Cmd
	stdin   io.WriteCloser
	log     string // path
	ended   chan error
}

// serveDemo runs prefill, decode and router as three processes until ctx ends or one of them does.
func serveDemo(ctx context.Context, o serveOptions, s streams) error {
	const tries = 3
	model, err := demoModel(o.model)
	if err != nil {
		return err
	}
	folder, err := demoFolder(o.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "writing prefill.toml decode.toml router.toml and logs to %s\n", folder)
	for try := 1; ; try++ {
		err := runDemo(ctx, folder, model, try, s)
		exit, ended := errors.AsType[*exec.ExitError](err)
		if !ended || exit.ExitCode() != exitTemporary || try == tries {
			return err
		}
		fmt.Fprintln(s.err, "somebody took a port while the processes started; trying others")
	}
}

// runDemo chooses ports, writes the files and runs the processes.
func runDemo(ctx context.Context, folder, model string, try int, s streams) error {
	nodes, err := demoNodes(try)
	if err != nil {
		return err
	}
	if err := writeDemo(folder, model, nodes); err != nil {
		return err
	}
	ended := make(chan error, len(nodes))
	defer func() {
		for _, n := range nodes {
			n.stop()
		}
	}()
	for _, n := range nodes {
		if err := n.start(folder, ended); err != nil {
			return err
		}
		if err := n.await(ctx, ended); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "  %s\n", n.line())
	}
	fmt.Fprintf(s.out,
		"ready. Try:  curl http://%s/v1/completions -H 'Content-Type: application/json' \\\n"+
			"             -d '{\"prompt\":\"In the beginning\",\"max_tokens\":40}'\n"+
			"             stop all three: Ctrl-C            by hand: engine serve -c %s\n",
		nodes[2].address, filepath.Join(folder, "prefill.toml"))
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// demoFolder is the folder asked for, or the first unused demo-N in the state folder.
func demoFolder(out string) (string, error) {
	if out != "" {
		path, err := filepath.Abs(out)
		if err == nil {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			return "", fmt.Errorf("make --out: %w", err)
		}
		return path, nil
	}
	state, err := config.StateFolder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", fmt.Errorf("make the state folder: %w", err)
	}
	for n := 1; ; n++ {
		path := filepath.Join(state, fmt.Sprintf("demo-%d", n))
		switch err := os.Mkdir(path, 0o700); {
		case err == nil:
			return path, nil
		case !os.IsExist(err):
			return "", fmt.Errorf("make the demonstration's folder: %w", err)
		}
	}
}

// demoNodes chooses a free port for each process: at the first try from the usual ones on, later
// away from others who are doing the same.
func demoNodes(try int) ([]*demoNode, error) {
	nodes := []*demoNode{
		{name: "p0", role: config.RolePrefill}, {name: "d0", role: config.RoleDecode},
		{name: "r0", role: config.RoleRouter},
	}
	away := (try - 1) * (10 + os.Getpid()%400)
	port := 7602 + away
	for _, n := range nodes {
		if n.role == config.RoleRouter {
			port = 8080 + away
		}
		free, err := freePort(port)
		if err != nil {
			return nil, err
		}
		n.address = fmt.Sprintf("127.0.0.1:%d", free)
		port = free + 1
	}
	return nodes, nil
}

// freePort is the first port from port on that nobody listens on.
func freePort(port int) (int, error) {
	for n := range 200 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+n))
		if err == nil {
			return port + n, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d", port, port+199)
}

// start runs the process with its log in the folder.
func (n *demoNode) start(folder string, ended chan<- error) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.Create(filepath.Join(folder, n.name+".log"))
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", n.name, err)
	}
	defer log.Close()
	n.log = log.Name()
	n.process = exec.Command(program, "serve", "-c", n.file, "--until-eof")
	n.process.Stdout, n.process.Stderr = log, log
	detach(n.process)
	if n.stdin, err = n.process.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	if err := n.process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	n.ended = make(chan error, 1)
	go func() {
		err := n.process.Wait()
		n.ended <- err
		if err == nil {
			err = errors.New("exit status 0")
		}
		ended <- fmt.Errorf("%s has ended (%w); its last words, from %s:\n%s", n.name, err, n.log,
			tail(n.log))
	}()
	return nil
}

// await waits until the process says in its log that it listens, and /ready says yes. Before the
// first, somebody else might answer at that address.
func (n *demoNode) await(ctx context.Context, ended <-chan error) error {
	const patience, pause = 5 * time.Minute, 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !n.listens() || !n.ready(ctx) {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w", n.name, ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// listens reports whether the process has said so.
func (n *demoNode) listens() bool {
	said, err := os.ReadFile(n.log)
	return err == nil && strings.Contains(string(said), "\nready.")
}

// ready asks /ready.
func (n *demoNode) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.address+"/ready", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// line is what the screen says of a process.
func (n *demoNode) line() string {
	if n.role == config.RoleRouter {
		return fmt.Sprintf("%-3s %-8s http://%s/v1  ready   1 prefill, 1 decode", n.name, n.role,
			n.address)
	}
	return fmt.Sprintf("%-3s %-8s internal %s   ready   pid %d", n.name, n.role, n.address,
		n.process.Process.Pid)
}

// stop closes the process's stdin, which ends it, and waits; a process that does not end is killed.
func (n *demoNode) stop() {
	if n.ended == nil {
		return
	}
	const patience = 5 * time.Second
	n.stdin.Close()
	select {
	case <-n.ended:
	case <-time.After(patience):
		_ = n.process.Process.Kill()
	}
}

// tail is the end of a file.
func tail(path string) string {
	const most = 2000
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
