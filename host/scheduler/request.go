package scheduler

import (
	"errors"
	"time"

	"github.com/kvrelay/engine/host/batch"
)

// SequenceID names a sequence. The caller gives each a new one, rising with submission.
type SequenceID uint64

// Kind is the engine action that a request asks for.
type Kind uint8

// Kinds of request.
const (
	// Local is prefilled and decoded here.
	Local Kind = iota
	// RemoteSend is prefilled here up to End; the KV of [Begin, End) goes to another instance.
	RemoteSend
	// PrepareReceive reserves pages for [0, End), which another instance computes.
	PrepareReceive
)

// Request is what the scheduler is asked to do. It never changes; Prompt is not kept.
type Request struct {
	ID     SequenceID
	Kind   Kind
	Prompt []int32
	// Embeds are the parts of the prompt that come as vectors, in order. What Prompt holds at their
	// positions does not count. No window may end inside one.
	Embeds []batch.Embedding
	// MaxNew is the most output tokens; at least 1 for Local. The caller ends the sequence there.
	MaxNew int
	// Begin and End are the KV window, positions of the prompt; a negative End counts from its end.
	// RemoteSend needs 0 <= Begin < End < len(Prompt), PrepareReceive Begin = 0 and
	// 0 <= End < len(Prompt). Local ignores both.
	Begin, End int

	// Arrival is when the request was accepted, and Deadline when its first token is wanted (0:
	// never), both on the clock that Plan is given.
	Arrival, Deadline time.Duration
	// What policies are told and the scheduler itself ignores; zero means unknown.
	Priority        int32
	Tenant          uint32
	Class           uint8
	Peer            uint16
	PredictedOutput uint32
	UserTag         uint64
	// Group is the same for requests that came as one; 0 is none.
	Group uint32
	// TokenGap is the longest wanted time between two tokens of its stream; 0 is any.
	TokenGap time.Duration

	// Pinned keeps the prompt's pages matchable and never evicted until Reset.
	Pinned bool
}

// Errors of Submit, StartGenerate and the other events. They are wrapped with the numbers.
var (
	// ErrQueueFull: max_queue requests wait already.
	ErrQueueFull = errors.New("queue full")
	// ErrTooLong: prompt and output pass the model's length, or would not fit an empty cache.
	ErrTooLong = errors.New("request too long")
	// ErrWindow: Begin and End are not a window of this prompt.
	ErrWindow = errors.New("invalid KV window")
	// ErrItem: an item of vectors does not lie in the prompt, or is more than a step can compute.
	ErrItem = errors.New("invalid prompt item")
	// ErrEmptyPrompt: a prompt needs at least one token.
	ErrEmptyPrompt = errors.New("empty prompt")
	// ErrMaxNew: a local request must ask for at least one token.
	ErrMaxNew = errors.New("invalid output length")
	// ErrDuplicate: a sequence of this ID exists.
	ErrDuplicate = errors.New("duplicate sequence ID")
	// ErrPinTooLarge: the pinned prompts would leave too little for one request of full length.
	ErrPinTooLarge = errors.New("pinned prompt too large")
	// ErrUnknown: there is no sequence of this ID.
	ErrUnknown = errors.New("unknown sequence")
	// ErrState: the sequence is in a state that does not allow this.
	ErrState = errors.New("not possible in this state")
	// ErrNotDelivered: the KV before the asked position has not been delivered.
	ErrNotDelivered = errors.New("KV not delivered")
)

// Reason says why a sequence ended.
type Reason uint8

// Finish reasons.
const (
	ReasonStop Reason = iota
	ReasonLength
	ReasonCancelled
	ReasonError
)

// State is where a sequence stands. Legal moves are in sequence.go.
type State uint8

// States of a sequence.
const (
	// Waiting in the queue, or for the policy to let it compute the rest of a received prompt.
	Waiting State = iota
	// Prefilling: it holds pages and has prompt tokens to compute.
	Prefilling
	// Prepared: its pages are reserved, nobody writes to them yet.
	Prepared
	// Receiving: another instance writes to its pages, or has delivered and nobody started it.
	Receiving
	// Decoding: one token a step.
	Decoding
	// Finished: it is gone, or its pages are still being read by a transfer.
	Finished
	// States is the number of states.
	States
)

// String is the state's name, as in metrics.
func (s State) String() string {
	if s >= States {
		return "invalid"
	}
	return [...]string{"waiting", "prefilling", "prepared", "receiving", "decoding", "finished"}[s]
}
