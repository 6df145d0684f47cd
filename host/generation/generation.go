// Package generation is the vocabulary of one generation: what is asked, what comes back, how it
// can fail. The engine and the router both offer a Source; the API serves whichever it is given.
// It holds no state.
package generation

import (
	"context"
	"time"

	"github.com/kvrelay/engine/host/sample"
)

// Request asks for the continuation of one prompt.
type Request struct {
	// ID is the client's label for the request. In the micro-serving calls it ties them together.
	ID     string
	Prompt []int32
	// MaxTokens bounds the output; 0 means what the context leaves.
	MaxTokens int
	Sampling  sample.Params
	// IgnoreEOS goes on after an end-of-sequence token.
	IgnoreEOS bool
	// PinPrompt keeps the prompt's pages in the prefix cache until a reset.
	PinPrompt bool
}

// Source generates: an engine, or a router in front of several.
type Source interface {
	// Generate admits the request or answers an *Error. Cancelling ctx ends the generation and
	// frees what it holds, on every instance that takes part.
	Generate(ctx context.Context, r Request) (Stream, error)
}

// Stream is the output of one generation, for one reader.
type Stream interface {
	// Next waits for more output. The update that carries a Finish is the last; an error (an
	// *Error or ctx's) ends the stream too.
	Next(ctx context.Context) (Update, error)
	// Stop ends the generation because the reader has enough: a stop string was seen. It is
	// harmless after the end.
	Stop()
}

// Update is what came since the last one.
type Update struct {
	Tokens []int32
	// Finish is set in the last update.
	Finish Finish
	// Report is complete in the last update; Cached is known from the first.
	Report Report
}

// Finish says why a generation ended well.
type Finish string

// The reasons. A failure is an Error, not a reason.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
)

// Report is what a generation cost.
type Report struct {
	// Cached is the count of prompt tokens whose keys and values were found, not computed.
	Cached int
	// Chunks is the count of prefill chunks computed for the prompt, wherever that was.
	Chunks int
	// BytesSent are the bytes of keys and values that crossed a connection for this prompt.
	BytesSent int64
	// Queue and Prefill end at the first token; Transfer runs from its first byte to the
	// acknowledgement and overlaps Prefill.
	Queue, Prefill, Transfer time.Duration
	// Policy is the policy that decided the last step, as NAME or NAME@VERSION.
	Policy string
}
