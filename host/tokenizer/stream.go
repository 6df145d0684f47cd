package tokenizer

// Stream decodes token IDs one at a time. Everything it returned, put together, is exactly
// what Decode gives for the same IDs, and no part of it ends inside a UTF-8 character.
type Stream struct{}

// NewStream starts a text. With skipSpecial, special tokens add nothing to it.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream { return &Stream{} }

// Push adds one token and returns the text that is certain now; often the token's own text,
// "" while a character is incomplete.
func (s *Stream) Push(id int32) string { return "" }

// Flush ends the text and returns what was held back; bytes that never became a character
// come out as U+FFFD. The stream is then ready for another text.
func (s *Stream) Flush() string { return "" }
