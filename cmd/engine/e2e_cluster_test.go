package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// cluster is a prefill instance, a decode instance and a router, each a process of its own.
type cluster struct {
	t                       *testing.T
	prefill, decode, router *node
}

// clusterOptions are tables for the TOML files beyond the roles.
type clusterOptions struct{ prefill, decode, router string }

func startCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	c := &cluster{t: t}
	c.prefill = serveNode(t, "[node]\nrole = \"prefill\"\nname = \"p0\"\n"+o.prefill)
	c.decode = serveNode(t, "[node]\nrole = \"decode\"\nname = \"d0\"\n"+o.decode)
	c.router = serveRouter(t, o.router, []*node{c.prefill}, []*node{c.decode})
	return c
}

// serveRouter starts a router before instances and waits until it has met them.
func serveRouter(t *testing.T, more string, prefill, decode []*node) *node {
	t.Helper()
	var b strings.Builder
	b.WriteString("[node]\nrole = \"router\"\nname = \"r0\"\n" +
		"[listen]\napi = \"127.0.0.1:0\"\ninternal = \"\"\n" + more)
	for role, list := range map[string][]*node{"prefill": prefill, "decode": decode} {
		for i, n := range list {
			fmt.Fprintf(&b, "\n[[router.%s]]\nname = \"%s%d\"\nurl = %q\n", role, role, i,
				n.internal)
		}
	}
	r := serveNode(t, b.String())
	eventually(t, patience, func() error {
		if answer := get(t, r.api+"/ready"); answer.status != http.StatusOK {
			return fmt.Errorf("the router is not ready: %s", answer.body)
		}
		return nil
	})
	// Requests go to those first that a check found well: which these are must not be chance.
	_ = poll(5*time.Second, func() error {
		if text := invoke(t, "", "instances", "list", "--admin", r.admin).out; text == "" ||
			strings.Contains(text, "starting") {
			return errors.New("not every instance was looked at")
		}
		return nil
	})
	return r
}

// rest waits until nobody holds anything, and wants nothing left behind on any instance.
func (c *cluster) rest(t *testing.T) {
	t.Helper()
	rest(t, c.prefill, c.decode)
	eventually(t, patience, func() error {
		s, err := scrape(c.router.api)
		if err != nil {
			return err
		}
		if n := s.sum("engine_router_instance_inflight"); n != 0 {
			return fmt.Errorf("the router counts %v requests in flight", n)
		}
		return nil
	})
}

// stop ends all three and wants them to end well.
func (c *cluster) stop() {
	c.t.Helper()
	c.router.stop()
	c.prefill.stop()
	c.decode.stop()
}
