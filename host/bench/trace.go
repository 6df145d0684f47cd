package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// bounds of a trace.
const (
	maxTraceLine     = 1 << 20
	maxTraceRequests = 1 << 20
	maxTraceTokens   = 1 << 24
)

// ReadTrace reads requests in the form of the Mooncake traces: a JSON object a line with timestamp
// (ms), input_length, output_length (tokens) and hash_ids, the names of the prompt's blocks. Times
// are divided by speed, lengths above mostTokens are cut to it, for both together.
func ReadTrace(from io.Reader, speed float64, mostTokens int) ([]Arrival, error) {
	if !(speed > 0) {
		return nil, fmt.Errorf("a speed of %v; it must be above 0", speed)
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxTraceLine)
	var list []Arrival
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Timestamp float64 `json:"timestamp"`
			In        int     `json:"input_length"`
			Out       int     `json:"output_length"`
			Blocks    []int64 `json:"hash_ids"`
		}
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d of the trace: %w", n, err)
		}
		a := Arrival{At: time.Duration(line.Timestamp / speed * float64(time.Millisecond)),
			In: line.In, Out: line.Out, Blocks: line.Blocks}
		switch {
		case a.In < 1 || a.Out < 1 || a.In > maxTraceTokens || a.Out > maxTraceTokens:
			return nil, fmt.Errorf("line %d of the trace: %d tokens in and %d out; 1 to %d are "+
				"possible", n, a.In, a.Out, maxTraceTokens)
		case len(list) > 0 && a.At < list[len(list)-1].At:
			return nil, fmt.Errorf("line %d of the trace is earlier than the one before it", n)
		case len(list) == maxTraceRequests:
			return nil, fmt.Errorf("the trace has more than %d requests", maxTraceRequests)
		}
		list = append(list, a.cut(mostTokens))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the trace: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("the trace has no request")
	}
	return list, nil
}

// cut makes a request fit: first the output is halved at most, then the prompt loses its end.
func (a Arrival) cut(most int) Arrival {
	if most <= 1 || a.In+a.Out <= most {
		return a
	}
	a.Out = min(a.Out, max(1, most/2))
	a.In = min(a.In, most-a.Out)
	return a
}
