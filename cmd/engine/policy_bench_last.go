package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins/authortools"
)

// benchRun is what is kept of a run of engine policy bench, to compare the next one with.
type benchRun struct {
	Digest string            `json:"digest"`
	Rows   []authortools.Row `json:"rows"`
}

// maxBenchRun bounds what is read of a kept run.
const maxBenchRun = 1 << 20

// compareLast prints how a run differs from the one before of the same file, and keeps it in its
// place. Where nothing can be kept, it says so and goes on: the measure itself was shown.
func compareLast(w io.Writer, module, digest string, m *authortools.Measured) error {
	file, err := benchFile(module)
	if err != nil {
		return err
	}
	last, err := readBenchRun(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w, "! the run before cannot be read: %v\n", err)
	}
	if last != nil {
		if text := difference(last.Rows, m.Rows); text != "" {
			short := last.Digest[:min(shownDigest, len(last.Digest))]
			fmt.Fprintf(w, "last run %s: %s\n", short, text)
		}
	}
	text, err := json.Marshal(benchRun{digest, m.Rows})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		fmt.Fprintf(w, "! this run is not kept for the next: %v\n", err)
	}
	return nil
}

// benchFile is where the latest run of a module's file is kept.
func benchFile(module string) (string, error) {
	cache, err := config.Default().CacheDir()
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(module, "builtin:") {
		if module, err = filepath.Abs(module); err != nil {
			return "", err
		}
	}
	return filepath.Join(cache, "bench", digestOf([]byte(module))[:16]+".json"), nil
}

func readBenchRun(file string) (*benchRun, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var run benchRun
	if err := json.NewDecoder(io.LimitReader(f, maxBenchRun)).Decode(&run); err != nil {
		return nil, err
	}
	return &run, nil
}

// difference compares the rows that two runs have in common: the mean change of the medians of time
// and of fuel. It is "" when they have none.
func difference(before, now []authortools.Row) string {
	time, fuel, n := 0.0, 0.0, 0
	for _, a := range before {
		for _, b := range now {
			if a.Waiting != b.Waiting || a.Changed != b.Changed || a.Resync != b.Resync ||
				a.P50 <= 0 || b.P50 <= 0 || a.Fuel50 <= 0 || b.Fuel50 <= 0 {
				continue
			}
			time += math.Log(float64(b.P50) / float64(a.P50))
			fuel += math.Log(float64(b.Fuel50) / float64(a.Fuel50))
			n++
		}
	}
	if n == 0 {
		return ""
	}
	percent := func(sum float64) float64 { return 100 * (math.Exp(sum/float64(n)) - 1) }
	return fmt.Sprintf("p50 %+.0f %% · fuel %+.1f %%", percent(time), percent(fuel))
}
