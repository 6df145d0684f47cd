package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/kvrelay/engine/host/bench"
)

// peerBatched is llama.cpp's measure of several sequences at once; llama-bench has one at a time.
const peerBatched = "llama-batched-bench"

// peerBench is llama.cpp on the same file and with as many threads, flash attention on.
type peerBench struct {
	single, batched string // "" of what is not there
	model           string
	threads         int
}

// canRun says before a model is loaded whether its peer is a program.
func canRun(flag, path string) error {
	found, err := exec.LookPath(path)
	if err == nil || errors.Is(err, exec.ErrDot) {
		path = found
	}
	info, statErr := os.Stat(path)
	switch {
	case statErr == nil && info.IsDir():
		return usageError("%s %s is a folder; name the program in it", flag, path)
	case statErr == nil && !info.Mode().IsRegular():
		return usageError("%s %s is no file, but a device, pipe or socket", flag, path)
	case statErr == nil && err != nil:
		return usageError("%s %s is no program: it may not be executed", flag, path)
	case err != nil:
		return usageError("%s %s: there is no such program", flag, path)
	}
	return nil
}

// newPeerBench looks for the batched measure beside the other one.
func newPeerBench(o *benchModel, threads int) *peerBench {
	p := &peerBench{single: o.peer, model: o.path, threads: threads}
	path, err := exec.LookPath(o.peer)
	if err != nil {
		return p // Running it says what is wrong.
	}
	beside := filepath.Join(filepath.Dir(path), peerBatched+filepath.Ext(path))
	if _, err := os.Stat(beside); err == nil {
		p.batched = beside
	}
	return p
}

// measures reports whether the peer has a case.
func (p *peerBench) measures(c bench.Case) bool {
	return c.Batch <= 1 || p.batched != "" && c.Prompt == 0
}

// other is the peer as something to compare with.
func (p *peerBench) other() other {
	return other{name: "peer", column: "PEER", measures: p.measures,
		rate: func(ctx context.Context, c bench.Case, _ uint64) (float64, string, error) {
			rate, err := p.rate(ctx, c)
			return rate, "", err
		}}
}

// errPeerSilent: the peer ended well and wrote no rate.
var errPeerSilent = errors.New("the peer wrote nothing")

// rate runs the peer once, and once more where it ends without a word: tokens a second.
func (p *peerBench) rate(ctx context.Context, c bench.Case) (float64, error) {
	rate, err := p.once(ctx, c)
	if errors.Is(err, errPeerSilent) && ctx.Err() == nil {
		rate, err = p.once(ctx, c)
	}
	return rate, err
}

// once runs the peer: tokens a second.
func (p *peerBench) once(ctx context.Context, c bench.Case) (float64, error) {
	program, args, key := p.single, []string{"-m", p.model, "-t", strconv.Itoa(p.threads),
		"-fa", "1", "-r", "1", "-o", "json", "-p", strconv.Itoa(c.Prompt),
		"-n", strconv.Itoa(c.Generate), "-d", strconv.Itoa(c.Depth)}, "avg_ts"
	if c.Batch > 1 {
		before := max(c.Depth, 1) // A sequence begins with a token.
		program, key = p.batched, "speed_tg"
		args = []string{"-m", p.model, "-t", strconv.Itoa(p.threads),
			"-tb", strconv.Itoa(p.threads), "-fa", "on", "--output-format", "jsonl",
			"-c", strconv.Itoa(c.Batch * (before + c.Generate)), "-npp", strconv.Itoa(before),
			"-ntg", strconv.Itoa(c.Generate), "-npl", strconv.Itoa(c.Batch)}
	}
	var out, words bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	asksToEnd(command)
	command.Stdout, command.Stderr = &out, &words
	name := filepath.Base(program)
	if err := command.Run(); err != nil {
		err = fmt.Errorf("run the peer: %s: %w", name, err)
		if words.Len() > 0 {
			err = fmt.Errorf("%w: %s", err, lastWords(words.Bytes()))
		}
		return 0, err
	}
	if len(bytes.TrimSpace(out.Bytes())) == 0 {
		return 0, fmt.Errorf("%s: %w, exit status 0; its messages: %s", name, errPeerSilent,
			lastWords(words.Bytes()))
	}
	rate, err := peerRate(out.Bytes(), key)
	if err != nil {
		return 0, fmt.Errorf("what %s wrote: %w", name, err)
	}
	return rate, nil
}

// lastWords are the end of what a program said, where the reason stands.
func lastWords(text []byte) string {
	const most = 300
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return "none"
	}
	return string(bytes.ToValidUTF8(text[max(0, len(text)-most):], nil))
}

// peerRate reads the one rate of what a peer wrote: a list of rows, or a row alone.
func peerRate(out []byte, key string) (float64, error) {
	var rows []map[string]any
	if err := json.Unmarshal(out, &rows); err != nil {
		var row map[string]any
		if err := json.Unmarshal(out, &row); err != nil {
			return 0, fmt.Errorf("not its JSON: %w", err)
		}
		rows = append(rows, row)
	}
	if len(rows) != 1 {
		return 0, fmt.Errorf("%d rows, not one", len(rows))
	}
	rate, _ := rows[0][key].(float64)
	if !(rate > 0) {
		return 0, fmt.Errorf("no rate %q in its row", key)
	}
	return rate, nil
}
