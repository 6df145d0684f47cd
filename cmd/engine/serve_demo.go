package main

import (
	"context"
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
	ended   chan error
}

// serveDemo runs prefill, decode and router as three processes until ctx ends or one of them does.
func serveDemo(ctx context.Context, o serveOptions, s streams) error {
	model, err := demoModel(o.model)
	if err != nil {
		return err
	}
	folder, err := demoFolder(o.out)
	if err != nil {
		return err
	}
	nodes, err := demoNodes()
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "writing prefill.toml decode.toml router.toml and logs to %s\n", folder)
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

// demoNodes chooses a free port for each process, from the usual ones on.
func demoNodes() ([]*demoNode, error) {
	nodes := []*demoNode{
		{name: "p0", role: config.RolePrefill}, {name: "d0", role: config.RoleDecode},
		{name: "r0", role: config.RoleRouter},
	}
	port := 7602
	for _, n := range nodes {
		if n.role == config.RoleRouter {
			port = 8080
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
		ended <- fmt.Errorf("%s has ended (%v); its last words, from %s:\n%s", n.name, err,
			log.Name(),
			tail(log.Name()))
	}()
	return nil
}

// await asks /ready until the process says yes.
func (n *demoNode) await(ctx context.Context, ended <-chan error) error {
	const patience, pause = 5 * time.Minute, 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.address+"/ready", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w", n.name, ctx.Err())
		case <-time.After(pause):
		}
	}
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
