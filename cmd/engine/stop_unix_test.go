//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestASignalEndsALongCommand sends each signal to commands that would go on for hours, once they
// are under way, or wait for somebody to write.
func TestASignalEndsALongCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for line, begun := range map[string]string{
			"bench -p 16 -n 0 --repeat 1000000":                           "round 1/",
			"bench gate SELF --rounds 100000 -- -p 1 -n 0 --repeat 10000": "engine bench -p 1",
		} {
			p := launch(t, strings.Fields(strings.ReplaceAll(line, "SELF", self))...)
			if p.err.await(regexp.MustCompile(begun)) == nil {
				t.Fatalf("%s did not begin", line)
			}
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			p.wait(exitFailed)
			if n := strings.Count(p.err.String(), "error: stopped"); n != 1 {
				t.Errorf("%s: said %d times that it was stopped", line, n)
			}
		}
	}
}
