package openai

// CompletionLogprobs are the log-probabilities in a completion; the lists have an element for each
// token.
type CompletionLogprobs struct {
	Tokens        []string  `json:"tokens"`
	TokenLogprobs []float64 `json:"token_logprobs"`
	// TopLogprobs is null where none were asked for. Tokens of equal text show once.
	TopLogprobs []map[string]float64 `json:"top_logprobs"`
	// TextOffset is where a token begins in the choice's whole text, in characters.
	TextOffset []int `json:"text_offset"`
	// Ranked tells the tokens by their ids, the chosen one first, then the likeliest, when asked
	// for by return_token_ids.
	Ranked [][]RankedToken `json:"ranked,omitempty"`
}

// RankedToken is a token and its log-probability.
type RankedToken struct {
	ID      int32   `json:"id"`
	Logprob float64 `json:"logprob"`
}

// ChatLogprobs are the log-probabilities in a chat.
type ChatLogprobs struct {
	Content []TokenLogprob `json:"content"`
	Refusal *Nothing       `json:"refusal"`
}

// TokenLogprob is one token of an answer. TopLogprobs is never null.
type TokenLogprob struct {
	TopLogprob
	TopLogprobs []TopLogprob `json:"top_logprobs"`
}

// TopLogprob is a token that was chosen or might have been. Bytes tell what Token cannot: a part
// of a character.
type TopLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}
