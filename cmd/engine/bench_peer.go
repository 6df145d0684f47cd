package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/kvrelay/engine/host/bench"
)

// peerRate runs llama-bench once on the same file and with as many threads, flash attention on.
func peerRate(ctx context.Context, o *benchModel, c bench.Case, threads int) (float64, error) {
	args := []string{"-m", o.path, "-t", strconv.Itoa(threads), "-fa", "1", "-r", "1", "-o", "json",
		"-p", strconv.Itoa(c.Prompt), "-n", strconv.Itoa(c.Generate), "-d", strconv.Itoa(c.Depth)}
	out, err := exec.CommandContext(ctx, o.peer, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %.300s", err, exit.Stderr)
		}
		return 0, fmt.Errorf("run the peer: %w", err)
	}
	var rows []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil {
		return 0, fmt.Errorf("what the peer wrote is not llama-bench's JSON: %w", err)
	}
	if len(rows) != 1 || !(rows[0].Rate > 0) {
		return 0, fmt.Errorf("the peer measured %d rows for %v, not one", len(rows), c)
	}
	return rows[0].Rate, nil
}
