package admin

import (
	"context"
	"encoding/json"
	"errors"
)

// Explain asks what happened to a request: the id that its answer carries in X-Request-Id, the
// client's own label, or the engine's number.
type Explain struct {
	ID string `json:"id"`
}

// Explained answers an Explain: the requests of that name, the latest first. n answers to one
// prompt are as many requests.
type Explained struct {
	Node     string        `json:"node"`
	Requests []Explanation `json:"requests"`
}

// Explanation is one request and what happened to it. Times are seconds since it was accepted.
type Explanation struct {
	ID     string `json:"id"`
	Label  string `json:"label"`
	Number uint64 `json:"number"`
	Tenant string `json:"tenant"`
	Kind   string `json:"kind"`
	// State is where it stands; "" once it has ended. Reason says why it ended then, Error what
	// went wrong.
	State  string `json:"state"`
	Reason string `json:"reason"`
	Error  string `json:"error,omitempty"`
	Policy string `json:"policy"`

	Prompt int `json:"prompt_tokens"`
	Cached int `json:"cached_tokens"`
	Output int `json:"output_tokens"`
	// Total is how long it took, or has taken so far; FirstToken and what it is made of are 0
	// before there was one.
	Total      float64 `json:"total_s"`
	Queue      float64 `json:"queue_s"`
	Prefill    float64 `json:"prefill_s"`
	FirstToken float64 `json:"ttft_s"`
	Decode     float64 `json:"decode_s"`
	Transfer   float64 `json:"transfer_s"`
	BytesSent  int64   `json:"bytes_sent"`

	Lines []Line `json:"lines"`
	// Lost lines are left out of their middle.
	Lost int `json:"lost,omitempty"`
}

// Line is one thing that happened, once or in several steps.
type Line struct {
	From  float64 `json:"from_s"`
	To    float64 `json:"to_s"`
	What  string  `json:"what"`
	Why   string  `json:"why,omitempty"`
	Step  uint64  `json:"step"`
	Steps int     `json:"steps"`
	// Tokens and Last mean what What says; Last is a length or a count by itself.
	Tokens int `json:"tokens"`
	Last   int `json:"last,omitempty"`
	// Policy decided; Reason is its own number for why, Words what its policy.toml says of that.
	Policy string `json:"policy,omitempty"`
	Reason uint16 `json:"reason,omitempty"`
	Words  string `json:"words,omitempty"`
}

// explain answers what happened to a request.
func (s *server) explain(ctx context.Context, body []byte) (Explained, error) {
	var ask Explain
	if err := json.Unmarshal(body, &ask); err != nil {
		return Explained{}, errors.New("the request is not understood: " + err.Error())
	}
	if s.options.Explain == nil {
		return Explained{}, errors.New("a router schedules nothing: ask the instances behind it " +
			"(engine instances lists them)")
	}
	return s.options.Explain(ctx, ask.ID)
}
