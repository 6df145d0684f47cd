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

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/config"
)

// adminClient talks to the operator's listener of one instance.
type adminClient struct {
	address string
	http    *http.Client
}

// dialAdmin finds the instance: the address given, or the one socket that there is.
func dialAdmin(address string) (*adminClient, error) {
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
	transport := &http.Transport{DialContext: func(ctx context.Context, network,
		to string) (net.Conn, error) {
		var d net.Dialer
		if unix {
			return d.DialContext(ctx, "unix", path)
		}
		return d.DialContext(ctx, "tcp", address)
	}}
	return &adminClient{address: address, http: &http.Client{Transport: transport}}, nil
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

// call makes one request. An instance that does not answer is exit 69.
func (c *adminClient) call(ctx context.Context, method, path string, body, to any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://admin"+path,
		bytes.NewReader(data))
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op
		}
		return unreachable(fmt.Errorf("no instance answers at %s: %w", c.address, err))
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, admin.MaxBody))
	if err != nil {
		return unreachable(fmt.Errorf("read the answer of %s: %w", c.address, err))
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

// reload tells an instance to read its file again and prints what became of each change.
func reload(ctx context.Context, address string, s streams) error {
	c, err := dialAdmin(address)
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
