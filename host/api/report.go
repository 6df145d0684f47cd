package api

import (
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// reportOf is the report of an answer by its last piece.
func reportOf(p piece) openai.Phases {
	a, from, ms := p.answer, p.report, openai.Milliseconds
	return openai.Phases{
		Queue: ms(from.Queue), Prefill: ms(from.Prefill), Transfer: ms(from.Transfer),
		TTFT: ms(a.ttft), Decode: ms(time.Since(a.begun) - a.ttft), Prompt: len(a.ask.Prompt),
		Cached: from.Cached, Output: a.output, Chunks: from.Chunks, BytesSent: from.BytesSent,
		Policy: from.Policy,
	}
}
