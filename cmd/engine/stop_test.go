package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestACommandThatIsStopped runs commands whose context has ended, as a signal ends it: each says
// so in one line, is no success and leaves nothing behind.
func TestACommandThatIsStopped(t *testing.T) {
	folder, model := t.TempDir(), "../../host/model/embedded/checkpoint"
	ctx, stop := context.WithCancel(t.Context())
	stop()
	silent, words := io.Pipe() // A terminal at which nobody writes.
	defer words.Close()
	for _, args := range [][]string{
		{"quantize", model, filepath.Join(folder, "out.gguf")},
		{"bench", "--repeat", "1", "-p", "16", "-n", "2"},
		{"bench", "--kernels", "--dtype", "f32", "--rows", "1", "--repeat", "1"},
		{"bench", "--serving", "--repeat", "1"},
		{"bench", "--url", "http://127.0.0.1:1"},
		{"bench", "gate", "/bin/true"},
		{"policy", "bench", "builtin:fcfs"},
		{"run", "--temperature", "0", "In the beginning"},
		{"run"},
		{"tokenize", "--json-lines"},
	} {
		var out, says bytes.Buffer
		code := execute(ctx, args, streams{silent, &out, &says})
		last := strings.TrimSpace(says.String())
		last = last[strings.LastIndexByte(last, '\n')+1:]
		if code != exitFailed || !strings.HasPrefix(last, "error: stopped") || out.Len() > 0 {
			t.Errorf("%v: exit %d\n%s%s", args, code, out.String(), says.String())
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestOtherErrorsStayAsTheyAre: a signal is the reason only of what it ended.
func TestOtherErrorsStayAsTheyAre(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	if err := ended(ctx, context.Canceled); err != context.Canceled {
		t.Errorf("without a signal: %v", err)
	}
	stop()
	own := errors.New("the disk is full")
	if err := ended(ctx, own); err != own {
		t.Errorf("another reason: %v", err)
	}
	if err := ended(ctx, nil); err != nil {
		t.Errorf("a success: %v", err)
	}
}
