package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAdminSilence: every command that asks an instance gives one up that takes connections and
// says nothing, and names the flag that would wait longer.
func TestAdminSilence(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // Connections wait there and nobody answers.
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for _, command := range []string{"reload", "drain", "explain x", "trace", "top --once",
		"instances list", "instances leave a", "policy list", "policy rollback", "policy unload a",
		"policy load builtin:fcfs"} {
		args := append(strings.Fields(command), "--admin", mute.Addr().String())
		got := invoke(t, "", append(args, "--timeout", "1ms")...)
		if got.code != exitUnreachable || !strings.Contains(got.err, "answers nothing for 1ms") ||
			!strings.Contains(got.err, "--timeout") {
			t.Errorf("%s: %+v", command, got)
		}
		changes := map[string]bool{"reload": true, "drain": true, "instances leave a": true,
			"policy rollback": true, "policy unload a": true,
			"policy load builtin:fcfs": true}[command]
		if strings.Contains(got.err, "it may still do what this command asked") != changes {
			t.Errorf("%s, which changes something (%v): %s", command, changes, got.err)
		}
		if got = invoke(t, "", append(args, "--timeout", "0s")...); got.code != exitUsage {
			t.Errorf("%s without a time: %+v", command, got)
		}
		args[len(args)-1] = "nonsense"
		if got = invoke(t, "", args...); got.code != exitUsage ||
			!strings.Contains(got.err, "write HOST:PORT or unix:PATH") {
			t.Errorf("%s of nonsense: %+v", command, got)
		}
	}
}

// TestAdminWorks: an instance that works on a call for long is waited for, while it answers other
// questions.
func TestAdminWorks(t *testing.T) {
	alive := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			alive <- true
			http.NotFound(w, r)
			return
		}
		for range 2 { // It takes longer than two questions.
			<-alive
		}
		_, _ = w.Write([]byte(`{"draining":true}`)) // A test that fails says so.
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	got := invoke(t, "", "drain", "--admin", address, "--timeout", patience.String())
	if got.code != 0 {
		t.Errorf("%+v", got)
	}
}
