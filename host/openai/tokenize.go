package openai

// Paths of what applications ask about tokens. Each is served with /v1 before it too.
const (
	PathTokenize   = "/tokenize"
	PathDetokenize = "/detokenize"
)

// Tokenize is a request to /tokenize: a prompt, or a conversation. Fields that only a generation
// needs may be there and mean nothing.
type Tokenize struct {
	// Chat holds the conversation; its Messages are nil where there is a prompt.
	Chat
	Prompt string
	// AddSpecialTokens adds what the model puts around a text. It is true for a prompt and false
	// for a conversation, whose template has them, unless the request says otherwise.
	AddSpecialTokens bool
	// AddGenerationPrompt ends a conversation where the assistant's answer begins.
	AddGenerationPrompt bool
	// ReturnTokenStrings asks for the tokens' names too.
	ReturnTokenStrings bool
}

// TokenizeResponse answers a Tokenize.
type TokenizeResponse struct {
	Count       int     `json:"count"`
	MaxModelLen int     `json:"max_model_len"`
	Tokens      []int32 `json:"tokens"` // never null
	// TokenStrings are the tokens as the vocabulary writes them, when they were asked for.
	TokenStrings []string `json:"token_strs,omitempty"`
}

// Detokenize is a request to /detokenize.
type Detokenize struct {
	Model  string
	Tokens []int32
}

// DetokenizeResponse answers a Detokenize. Special tokens are part of the text.
type DetokenizeResponse struct {
	Prompt string `json:"prompt"`
}

// DecodeTokenize reads the body of a tokenize request.
func DecodeTokenize(body []byte, l Limits) (*Tokenize, *Error) {
	members, err := parse(body)
	if err != nil {
		return nil, err
	}
	t := &Tokenize{AddGenerationPrompt: true}
	var special *bool
	hasPrompt := false
	for _, m := range members {
		if m.null() {
			continue
		}
		switch m.name {
		case "prompt":
			hasPrompt = true
			err = m.text(&t.Prompt, MaxText)
		case "add_special_tokens":
			special = new(bool)
			err = m.boolean(special)
		case "add_generation_prompt":
			err = m.boolean(&t.AddGenerationPrompt)
		case "return_token_strs":
			err = m.boolean(&t.ReturnTokenStrings)
		default:
			err = t.member(m, l)
		}
		if err != nil {
			return nil, err
		}
	}
	t.AddSpecialTokens = hasPrompt
	if special != nil {
		t.AddSpecialTokens = *special
	}
	if hasPrompt && t.Messages != nil {
		return nil, Errorf(CodeInvalidValue, "messages", "prompt and messages exclude each other")
	}
	if !hasPrompt && t.Messages == nil {
		return nil, Errorf(CodeMissingField, "prompt", "prompt or messages is missing")
	}
	if err := t.Tools.complete(nil); err != nil {
		return nil, err
	}
	return t, nil
}

// DecodeDetokenize reads the body of a detokenize request.
func DecodeDetokenize(body []byte) (*Detokenize, *Error) {
	members, err := parse(body)
	if err != nil {
		return nil, err
	}
	d := &Detokenize{}
	for _, m := range members {
		switch {
		case m.null():
		case m.name == "model":
			err = m.text(&d.Model, MaxModel)
		case m.name == "tokens" && m.raw[0] != '[':
			err = m.wrong("an array of token ids")
		case m.name == "tokens":
			d.Tokens, err = m.tokens()
		}
		if err != nil {
			return nil, err
		}
	}
	if d.Tokens == nil {
		return nil, missing("tokens")
	}
	return d, nil
}
