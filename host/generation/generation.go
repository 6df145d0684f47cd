// Package generation is the vocabulary of one generation: what is asked, what comes back, how it
// can fail. The engine and the router both offer a Source; the API serves whichever it is given.
// It holds no state.
package generation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kvrelay/engine/host/sample"
)

// Request asks for the continuation of one prompt.
type Request struct {
	// ID is the client's label for the request. In the micro-serving calls it ties them together.
	ID     string
	Prompt []int32
	// RequestID is the id that the answer carries, by which people find the request.
	RequestID string
	// Emitted counts the last tokens of Prompt that are output of this request already, which
	// another instance generated: the generation goes on behind them as if they were its own.
	// MaxTokens, MinTokens, penalties, chance and a constraint count them as output.
	Emitted int
	// Embeds are the parts of the prompt that come as vectors, in order; Prompt has Placeholder at
	// their positions.
	Embeds []Embedding
	// MaxTokens bounds the output; 0 means what the context leaves.
	MaxTokens int
	Sampling  sample.Params
	// IgnoreEOS goes on after an end-of-sequence token.
	IgnoreEOS bool
	// MinTokens is how many tokens come before the model may end its output.
	MinTokens int
	// Logprobs asks for the log-probability of each token, and of the TopLogprobs likeliest ones
	// in its place (0 to sample.MaxTopLogprobs).
	Logprobs    bool
	TopLogprobs int
	// PinPrompt keeps the prompt's pages in the prefix cache until a reset.
	PinPrompt bool
	// Traceparent is the request's place in a trace, as the W3C writes it; "" is none.
	Traceparent string
	// Hints are what policies are told.
	Hints Hints
	// Constraint says which outputs may come; nil: all. Form is what another instance makes the
	// same one from, as the response_format of a request.
	Constraint Constraint
	Form       json.RawMessage
}

// Hints are a request's wishes that bear on when its tokens come, never on which.
type Hints struct {
	// Priority: larger first.
	Priority int32
	// Deadline is when the first token is wanted, from the request's arrival; 0 is never.
	Deadline time.Duration
	// Tenant names whose request it is; "" is the default tenant.
	Tenant string
	// Class is the service class, a number of the policy ABI; 0 is none.
	Class uint8
	// PredictedOutput is how many tokens somebody expects; 0 is unknown.
	PredictedOutput uint32
	// Tag is a number that only the policy gives a meaning.
	Tag uint64
	// Group is the same for requests that came as one, or that a client groups; 0 is none.
	Group uint32
}

// Service classes, as in the policy ABI.
const (
	ClassInteractive uint8 = 1 // Somebody waits for it.
	ClassBatch       uint8 = 2 // Nobody does.
)

// Constraint follows one output and says which tokens may come next. It belongs to one request;
// its methods are called by one goroutine at a time.
type Constraint interface {
	// Least is how many tokens are enough to end the output from here.
	Least() int
	// Mask sets the logits of tokens that may not come next to -Inf. At most left tokens may still
	// come, and left is at least Least: something is always allowed. end are the tokens that end
	// an output; they are left alone where it may end and forbidden elsewhere.
	Mask(logits []float32, left int, end []int32)
	// Accept notes the token that was chosen, which Mask allowed. It reports whether nothing can
	// follow: the output has ended.
	Accept(token int32) (ended bool)
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
	// *Error or ctx's) ends the stream too. An update's Tokens are valid until the next call.
	Next(ctx context.Context) (Update, error)
	// Stop ends the generation because the reader has enough: a stop string was seen. It is
	// harmless after the end.
	Stop()
}

// Update is what came since the last one.
type Update struct {
	Tokens []int32
	// Logprobs has an element for each of Tokens when the request asked for it; else it is nil.
	Logprobs []Logprobs
	// Finish is set in the last update.
	Finish Finish
	// Report is complete in the last update; Cached is known from the first.
	Report Report
}

// Logprobs are the log-probabilities at one place of the output, under the model's own logits:
// before temperature, penalties, biases and constraints.
type Logprobs struct {
	Chosen Logprob
	// Top are the likeliest tokens, likeliest first.
	Top []Logprob
}

// Logprob is a token and the natural logarithm of its probability.
type Logprob = sample.Logprob

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
	// Queue and Prefill end at the first token of a generation that one instance did alone.
	// Transfer runs from its first byte to the acknowledgement and overlaps Prefill.
	Queue, Prefill, Transfer time.Duration
	// Handoff, Wait and First come between Prefill and the first token of one that was handed over:
	// what of the transfer was not hidden behind the computation, how long the receiver took to
	// begin with the rest of the prompt, and the rest itself. The five add up to the time to the
	// first token, but for the way between the instances, which is part of First at the front door.
	Handoff, Wait, First time.Duration
	// Decode is the time from the first token to the last of the update that has it, as the engine
	// made them.
	Decode time.Duration
	// Policy is the policy that decided the last step, as NAME or NAME@VERSION.
	Policy string
}
