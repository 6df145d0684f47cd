package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBenchURLOfAnotherServer: a server that answers was reached, even if it says that it has no
// such path.
func TestBenchURLOfAnotherServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	got := invoke(t, "", "bench", "--url", url+"/v1")
	if got.code != exitFailed || !strings.Contains(got.err, "GET /v1/models: 404") {
		t.Errorf("%+v", got)
	}
	server.Close()
	if got = invoke(t, "", "bench", "--url", url); got.code != exitUnreachable {
		t.Errorf("nobody listens: %+v", got)
	}
}
