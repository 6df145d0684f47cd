//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestServeWithoutHome: a user whose home cannot be written to, or who has none, has no admin
// socket, no cache and no state; the instance says so, with the keys that name other places, and
// serves. An address that the file names is insisted on, and so is one that another instance has.
func TestServeWithoutHome(t *testing.T) {
	dir := shortDir(t)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const listen = "[node]\nname = \"n0\"\n[listen]\napi = \"127.0.0.1:0\"\ninternal = \"\"\n"
	file, taken := write("engine.toml", listen), write("file", "")
	serve := func(file string, env ...string) *node {
		args := append(append([]string{"-u", "XDG_RUNTIME_DIR"}, env...), program, "serve", "-c",
			file, "--until-eof")
		return &node{process: launchCommand(t, exec.Command("env", args...))}
	}
	for _, env := range [][]string{{"HOME=" + filepath.Join(taken, "home")}, {"-u", "HOME"}} {
		n := serve(file, env...)
		n.awaitReady()
		r := post(t, n.api+"/v1/completions", fields{"prompt": "And", "max_tokens": 2})
		if r.status != 200 || strings.Contains(n.out.String(), "  admin ") {
			t.Errorf("%v: %d %s\n%s", env, r.status, r.body, n.out)
		}
		n.stop()
		for _, want := range []string{"no admin socket", "set listen.admin to", "policies"} {
			if !strings.Contains(n.err.String(), want) {
				t.Errorf("%v: no %q in\n%s", env, want, n.err)
			}
		}
	}
	named := write("named.toml", fmt.Sprintf("%sadmin = \"unix:%s/admin.sock\"\n", listen, taken))
	n := serve(named, "HOME="+dir)
	n.wait(exitFailed)
	if !strings.Contains(n.err.String(), "error: listen.admin: ") {
		t.Errorf("an address of the file's own: %s", n.err)
	}
	first := serve(file, "HOME="+dir)
	if first.out.await(regexp.MustCompile(`  admin +unix:\S+/n0\.sock`)) == nil {
		t.Fatalf("no admin socket below a home: %s%s", first.out, first.err)
	}
	first.awaitReady()
	second := serve(file, "HOME="+dir)
	second.wait(exitFailed)
	if !strings.Contains(second.err.String(), "another instance listens there; give this one") {
		t.Errorf("two of one name: %s", second.err)
	}
	first.stop()
}
