package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/config"
)

// adminTarget is the instance that a command speaks to.
type adminTarget struct {
	address string // "": the one socket that there is
	timeout time.Duration
}

// adminSilence is how long an instance may say nothing at all: a process that was stopped keeps its
// sockets open.
const adminSilence = 10 * time.Second

// each gives every address a target of its own; of none, the one socket that there is.
func (t adminTarget) each(addresses []string) []adminTarget {
	if len(addresses) == 0 {
		return []adminTarget{t}
	}
	var all []adminTarget
	for _, address := range addresses {
		all = append(all, adminTarget{address, t.timeout})
	}
	return all
}

// adminClient talks to the operator's listener of one instance.
type adminClient struct {
	address string
	silence time.Duration
	http    *http.Client
}

// dial finds the instance: the address given, or the one socket that there is.
func (t adminTarget) dial() (*adminClient, error) {
	address := t.address
	if t.timeout <= 0 {
		return nil, usageError("--timeout %v: a time above 0, such as 10s", t.timeout)
	}
	if address == "" {
		sockets, folder, err := adminSockets()
		if err != nil {
			return nil, err
		}
		switch len(sockets) {
		case 0:
			return nil, unreachable(fmt.Errorf("no instance runs here: no socket in %s; "+
				"start one with `engine serve`, or name it with --admin", folder))
		case 1:
			address = "unix:" + sockets[0]
		default:
			return nil, usageError("several instances run here; name one with --admin:\n  unix:%s",
				strings.Join(sockets, "\n  unix:"))
		}
	}
	path, unix := strings.CutPrefix(address, "unix:")
	if _, _, err := net.SplitHostPort(address); err != nil && !unix {
		return nil, usageError("--admin %q: write HOST:PORT or unix:PATH", address)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network,
		to string) (net.Conn, error) {
		var d net.Dialer
		if unix {
			return d.DialContext(ctx, "unix", path)
		}
		return d.DialContext(ctx, "tcp", address)
	}}
	return &adminClient{address: address, silence: t.timeout,
		http: &http.Client{Transport: transport}}, nil
}

// adminSockets lists the sockets in the runtime folder, and those of demonstrations in the state
// folder on which somebody listens.
func adminSockets() (sockets []string, folder string, err error) {
	if folder, err = config.RuntimeFolder(); err != nil {
		return nil, "", err
	}
	if sockets, err = filepath.Glob(filepath.Join(folder, "*.sock")); err != nil {
		return nil, "", err
	}
	state, err := config.StateFolder()
	if err != nil {
		return nil, "", err
	}
	demos, err := filepath.Glob(filepath.Join(state, "demo-*", "*.sock"))
	if err != nil {
		return nil, "", err
	}
	for _, path := range demos {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			sockets = append(sockets, path)
		}
	}
	return sockets, folder, nil
}

// call makes one request. An instance that does not answer is exit 69. What it works on may take
// as long as it takes, while it answers other questions beside it.
func (c *adminClient) call(ctx context.Context, method, path string, body, to any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	watched, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go c.watch(watched, giveUp)
	request, err := http.NewRequestWithContext(watched, method, "http://admin"+path,
		bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.broken(request, "no instance answers at "+c.address, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, admin.MaxBody))
	if err != nil {
		return c.broken(request, "read the answer of "+c.address, err)
	}
	if response.StatusCode != http.StatusOK {
		var failure admin.Failure
		if json.Unmarshal(answer, &failure) != nil || failure.Error == "" {
			failure.Error = fmt.Sprintf("%s answered %s", c.address, response.Status)
		}
		return errors.New(failure.Error)
	}
	return json.Unmarshal(answer, to)
}

// errMute is why a call was given up whose instance answers nothing.
var errMute = errors.New("it answers nothing")

// broken says why a call has no answer. A process that goes on later reads what was asked of it.
func (c *adminClient) broken(r *http.Request, what string, err error) error {
	if context.Cause(r.Context()) == errMute {
		later := ""
		if r.Method != http.MethodGet && r.URL.Path != "/explain" {
			later = "; if it goes on, it may still do what this command asked for"
		}
		return unreachable(fmt.Errorf("the instance at %s takes connections and answers nothing "+
			"for %v: it is stopped or hangs; --timeout waits longer%s", c.address, c.silence,
			later))
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op
	}
	return unreachable(fmt.Errorf("%s: %w", what, err))
}

// aliveEvery is how often an instance that works on a call is asked for a sign of life.
const aliveEvery = time.Second

// watch gives a call up whose instance falls silent: beside the call it is asked something else, on
// a connection of its own, and has its time for any word.
func (c *adminClient) watch(ctx context.Context, giveUp context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(aliveEvery, c.silence)):
		}
		asked, cancel := context.WithTimeout(ctx, c.silence)
		err := c.word(asked)
		late := asked.Err() != nil
		cancel()
		if err != nil && late && ctx.Err() == nil {
			giveUp(errMute)
			return
		}
	}
}

// word wants an answer, whatever it is.
func (c *adminClient) word(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/live", nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// reload tells an instance to read its file again and prints what became of each change.
func reload(ctx context.Context, address adminTarget, s streams) error {
	c, err := address.dial()
	if err != nil {
		return err
	}
	var r admin.Reloaded
	if err := c.call(ctx, "POST", "/reload", nil, &r); err != nil {
		return err
	}
	if r.Problems != "" {
		fmt.Fprint(s.err, r.Problems)
		return &failure{exitConfig,
			errors.New("the file has problems; the running configuration stays")}
	}
	applied := 0
	for _, change := range r.Changes {
		mark := "!"
		if change.Applied {
			mark, applied = "~", applied+1
		}
		fmt.Fprintf(s.out, " %s %-26s %s → %s   %s\n", mark, change.Key, change.Old, change.New,
			change.Note)
	}
	fmt.Fprintf(s.out, "applied %d of %d · generation %d\n", applied, len(r.Changes), r.Generation)
	return nil
}
