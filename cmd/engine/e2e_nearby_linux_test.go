package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// serveIn starts an instance whose runtime folder is dir.
func serveIn(t *testing.T, dir, text string) *node {
	t.Helper()
	n := prepareNode(t, text)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.process = launchCommand(t, exec.Command("env", "XDG_RUNTIME_DIR="+dir, program, "serve", "-c",
		n.file, "--until-eof"))
	n.awaitReady()
	return n
}

// TestTransfersOnOneHost hands over by each transport that two instances of one user have on one
// host, and wants the tokens of the golden case and no socket left behind, by a kill neither.
func TestTransfersOnOneHost(t *testing.T) {
	for _, by := range []string{"shm", "unix", "tcp"} {
		t.Run(by, func(t *testing.T) {
			dir := shortDir(t)
			c := &cluster{t: t}
			c.prefill = serveIn(t, dir, "[node]\nrole = \"prefill\"\nname = \"p0\"\n"+
				"[transfer]\ntransports = [\""+by+"\"]\n")
			c.decode = serveIn(t, dir, "[node]\nrole = \"decode\"\nname = \"d0\"\n")
			c.router = serveRouter(t, "", []*node{c.prefill}, []*node{c.decode})
			want, _ := longCase(t)
			body := greedy.with(fields{"prompt": want.PromptIDs, "return_token_ids": true})
			answers := background(t.Context(), t, c.router.api+"/v1/completions", body)
			got := (<-answers).completion(t)
			if !slices.Equal(got.Choices[0].TokenIDs, want.GreedyIDs) {
				t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, want.GreedyIDs)
			}
			for role, n := range map[string]*node{"send": c.prefill, "receive": c.decode} {
				if bytes := n.metric("engine_transfer_bytes_total", `direction="`+role+`"`,
					`transport="`+by+`"`); bytes <= 0 {
					t.Errorf("%s: %v bytes by %s", role, bytes, by)
				}
			}
			c.rest(t)
			c.decode.kill()
			left := filepath.Join(dir, "engine", "transfer", "*")
			if found, _ := filepath.Glob(left); len(found) != 1 {
				t.Fatalf("after a kill: %v", found)
			}
			again := serveIn(t, dir, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
			if found, _ := filepath.Glob(left); len(found) != 1 {
				t.Errorf("the next instance left %v", found)
			}
			again.stop()
			if found, _ := filepath.Glob(left); len(found) != 0 {
				t.Errorf("after the end: %v", found)
			}
		})
	}
}
