//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestFewFiles: an instance that may open few files keeps some for itself, says so, and tells that
// it lives however many connections clients hold.
func TestFewFiles(t *testing.T) {
	const files, clients = 600, 500
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := prepareNode(t, "")
	n.process = launchCommand(t, exec.Command("sh", "-c",
		fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files),
		program, "serve", "-c", n.file, "--until-eof"))
	n.awaitReady()
	for range clients {
		c, err := net.Dial("tcp", strings.TrimPrefix(n.api, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	eventually(t, patience, func() error {
		if open := n.metric("engine_http_connections"); open < clients {
			return fmt.Errorf("%v connections are open", open)
		}
		return nil
	})
	if r := get(t, n.api+"/live"); r.status != http.StatusOK {
		t.Errorf("/live: %d %s", r.status, r.body)
	}
	if r := get(t, n.api+"/v1/models"); r.status != http.StatusServiceUnavailable {
		t.Errorf("/v1/models: %d %s", r.status, r.body)
	}
	if r := get(t, n.internal+"/ready"); r.status != http.StatusOK {
		t.Errorf("internal /ready: %d %s", r.status, r.body)
	}
	if !strings.Contains(n.err.String(), "max_connections") {
		t.Error("nothing was said about max_connections")
	}
}
