package openai

import "time"

// HeaderReport asks for a last event with what a stream cost, phase by phase, and in a remote_send
// for its part of that. Clients that do not ask see the events of the OpenAI API alone.
const HeaderReport = "X-Engine-Report"

// ObjectReport is the object of that event.
const ObjectReport = "engine.report"

// Report is that event. Its choices are empty, as in the event with the usage.
type Report struct {
	Object  string     `json:"object"`
	Choices []struct{} `json:"choices"`
	Phases  Phases     `json:"phases"`
}

// Phases are the parts of one answer. Times are in milliseconds. Queue, prefill, transfer tail,
// decode wait and first token add up to TTFT; transfer is its whole length and overlaps prefill.
type Phases struct {
	Queue     float64 `json:"queue_ms"`
	Prefill   float64 `json:"prefill_ms"`
	Transfer  float64 `json:"transfer_ms"`
	Tail      float64 `json:"transfer_tail_ms"`
	Wait      float64 `json:"decode_wait_ms"`
	First     float64 `json:"first_token_ms"`
	TTFT      float64 `json:"ttft_ms"`
	Decode    float64 `json:"decode_ms"`
	Prompt    int     `json:"prompt_tokens"`
	Cached    int     `json:"cached_tokens"`
	Output    int     `json:"output_tokens"`
	Chunks    int     `json:"prefill_chunks"`
	BytesSent int64   `json:"bytes_sent"`
	Policy    string  `json:"policy"`
}

// Milliseconds is a duration as reports have it, to the microsecond.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// FromMilliseconds is the duration that a report has.
func FromMilliseconds(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond))
}
