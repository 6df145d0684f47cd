// Package bench measures: a model's prefill and decode rates, and a server under load. It makes
// numbers and tables; `engine bench` shows them.
package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Result is what one run measured, as it is saved.
type Result struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"` // model, kernels, serving or load
	When    time.Time `json:"when"`
	Machine Machine   `json:"machine"`
	Subject string    `json:"subject"` // the model's name or the server's address
	// Settings are what the figures depend on beside machine and subject, by the names of flags.
	Settings map[string]string `json:"settings,omitempty"`
	Rows     []Row             `json:"rows"`
	Load     *Load             `json:"load,omitempty"`
}

// resultVersion is that of Result's form.
const resultVersion = 1

// Machine is where a result comes from.
type Machine struct {
	Processor string  `json:"processor"`
	Threads   int     `json:"threads"`
	Device    string  `json:"device,omitempty"`
	LoadAtRun float64 `json:"load"` // of the machine when the run began, by its own average
}

// Row is one measured quantity.
type Row struct {
	Name    string    `json:"name"` // "pp512", "TTFT p99"
	Unit    string    `json:"unit"` // "tok/s", "ms"
	Samples []float64 `json:"samples,omitempty"`
	Value   float64   `json:"value"`  // the median of the samples, where there are any
	Spread  float64   `json:"spread"` // their standard deviation
	// Lower says that less is better.
	Lower bool `json:"lower,omitempty"`
	// Share is the part of what the machine does at most; 0 where nothing bounds the row.
	Share float64 `json:"share,omitempty"`
	// Machine says that the row tells of the machine or of a peer, not of the program.
	Machine bool `json:"machine,omitempty"`
}

// RowOf summarises samples.
func RowOf(name, unit string, samples []float64) Row {
	r := Row{Name: name, Unit: unit, Samples: samples, Value: Quantile(samples, 0.5)}
	mean := Mean(samples)
	for _, x := range samples {
		r.Spread += (x - mean) * (x - mean)
	}
	if n := len(samples); n > 1 {
		r.Spread = math.Sqrt(r.Spread / float64(n-1))
	} else {
		r.Spread = 0
	}
	return r
}

// Mean of samples; 0 of none.
func Mean(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range samples {
		sum += x
	}
	return sum / float64(len(samples))
}

// Quantile is the value below which the share q of the samples lies, between neighbours by their
// distance; 0 of no samples. Samples may come in any order.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// maxResultFile bounds what Read takes.
const maxResultFile = 64 << 20

// Read reads a saved result.
func Read(path string) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxResultFile {
		return nil, fmt.Errorf("%s has %d bytes; a result has at most %d",
			path, info.Size(), maxResultFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is no result of engine bench: %w", path, err)
	}
	if r.Version != resultVersion {
		return nil, fmt.Errorf("%s is of version %d, this engine reads %d",
			path, r.Version, resultVersion)
	}
	return &r, nil
}

// Save writes a result as JSON.
func (r *Result) Save(path string) error {
	r.Version = resultVersion
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
