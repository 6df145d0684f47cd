package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestRouterTakesOtherInstances: a reload exchanges the instances of a router under its feet; what
// is taken out gets no request any more, what came does the work, and top sees both.
func TestRouterTakesOtherInstances(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	ask := func() {
		t.Helper()
		k := knock{"POST", c.router.api + "/v1/completions", short}
		if r := visit(t, http.DefaultClient, k, "X-Tenant: acme"); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	ask()
	second := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
	text := readText(t, c.router.file)
	text = strings.Replace(text, fmt.Sprintf("%q", c.decode.internal),
		fmt.Sprintf("%q", second.internal), 1)
	c.router.rewrite(t, strings.Replace(text, `"decode0"`, `"decode1"`, 1))
	reloadSays(t, c.router, "router.decode", "decode1", "applied 1 of 1")
	eventually(t, patience, func() error {
		s := stateOf(t, c.router.admin)
		if len(s.Instances) != 2 || s.Instances[1].Name != "decode1" || !s.Instances[1].Up ||
			s.Instances[1].Pages.Total == 0 || s.Instances[1].Policy != "builtin:fcfs" {
			return fmt.Errorf("%+v", s.Instances)
		}
		return nil
	})
	before, err := scrape(c.decode.internal)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		answer := get(t, c.router.api+"/ready")
		if answer.status != http.StatusOK {
			return fmt.Errorf("not ready: %s", answer.body)
		}
		return nil
	})
	ask()
	after, err := scrape(c.decode.internal)
	if err != nil {
		t.Fatal(err)
	}
	const finished = "engine_requests_finished_total"
	if before.sum(finished) != after.sum(finished) {
		t.Error("an instance that was taken out still gets requests")
	}
	served, err := scrape(second.internal)
	if err != nil {
		t.Fatal(err)
	}
	tokens := served.sum("engine_tenant_service_tokens_total", `tenant="acme"`)
	if served.sum(finished) == 0 || tokens != 4 {
		t.Errorf("the new instance finished %v requests, %v tokens of the tenant",
			served.sum(finished), tokens)
	}
	series, err := scrape(c.router.api)
	if err != nil {
		t.Fatal(err)
	}
	for key := range series {
		if strings.Contains(key, `instance="decode0"`) {
			t.Errorf("the metrics still name it: %s", key)
		}
	}
	rest(t, c.prefill, second)
}
