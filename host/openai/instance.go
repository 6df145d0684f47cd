package openai

// Paths beside the three micro-serving calls.
const (
	// PathCommit keeps what was delivered for the reservation that user names, and ends it.
	PathCommit = "/microserving/commit"
	// PathRelease drops the reservation that user names.
	PathRelease = "/microserving/release"
	// PathInstance answers an Instance.
	PathInstance = "/microserving/instance"
	// PathFiles gives the files of TokenizerFiles to routers, each under its name.
	PathFiles = "/microserving/files/"
)

// Instance is what a router needs to know of an instance.
type Instance struct {
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	Models  []string `json:"models"`
	Context int      `json:"max_model_len"`
	// Hidden is the width of the vectors that may stand for tokens in a prompt; 0: none may.
	Hidden   int      `json:"hidden_size"`
	Defaults Defaults `json:"defaults"`
	// Compat is equal on instances that can hand requests over to each other; Parts says what it
	// is made of, for people.
	Compat      string            `json:"compat"`
	Parts       map[string]string `json:"compat_parts"`
	Fingerprint string            `json:"fingerprint"`
	// Recomputes says that it computes itself what a lost transfer leaves open.
	Recomputes bool `json:"recomputes_lost"`
	// Stalled is how many milliseconds work has waited without anything having run.
	Stalled float64 `json:"stalled_ms"`
	// Waiting and Running count requests now.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
}

// Defaults hold for fields that a request leaves out. MaxTokens 0 is what the context leaves; a nil
// Seed is a new one for each request.
type Defaults struct {
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	TopK        int     `json:"top_k"`
	MaxTokens   int     `json:"max_tokens"`
	Seed        *uint64 `json:"seed"`
}

// TokenizerFiles are the files of a model folder that make its tokenizer. All but the first may be
// missing.
func TokenizerFiles() []string {
	return []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
		"generation_config.json", "chat_template.jinja"}
}

// Release is the body of a release call, and of a commit.
type Release struct {
	User string `json:"user"`
}

// CommitResponse answers a commit. Status is "ok"; so many of the prompt's tokens are here.
type CommitResponse struct {
	Status          string `json:"status"`
	CommittedTokens int    `json:"committed_tokens"`
}
