package api

import "time"

// headerReport asks for a last event with what a stream cost, phase by phase. Clients that do not
// ask see the events of the OpenAI API alone.
const headerReport = "X-Engine-Report"

// objectReport is the object of that event.
const objectReport = "engine.report"

// report is that event. Its choices are empty, as in the event with the usage.
type report struct {
	Object  string     `json:"object"`
	Choices []struct{} `json:"choices"`
	Phases  phases     `json:"phases"`
}

// phases are the parts of one answer. Times are in milliseconds; queue, prefill and the rest of the
// first token add up to TTFT, transfer overlaps prefill.
type phases struct {
	Queue     float64 `json:"queue_ms"`
	Prefill   float64 `json:"prefill_ms"`
	Transfer  float64 `json:"transfer_ms"`
	TTFT      float64 `json:"ttft_ms"`
	Decode    float64 `json:"decode_ms"`
	Prompt    int     `json:"prompt_tokens"`
	Cached    int     `json:"cached_tokens"`
	Output    int     `json:"output_tokens"`
	Chunks    int     `json:"prefill_chunks"`
	BytesSent int64   `json:"bytes_sent"`
	Policy    string  `json:"policy"`
}

// fill takes an answer's last piece.
func (r *report) fill(p piece) {
	if r == nil {
		return
	}
	a, from := p.answer, p.report
	r.Phases = phases{
		Queue: ms(from.Queue), Prefill: ms(from.Prefill), Transfer: ms(from.Transfer),
		TTFT: ms(a.ttft), Decode: ms(time.Since(a.begun) - a.ttft), Prompt: len(a.ask.Prompt),
		Cached: from.Cached, Output: a.output, Chunks: from.Chunks, BytesSent: from.BytesSent,
		Policy: from.Policy,
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
