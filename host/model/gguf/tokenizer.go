package gguf

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const tokenizerPrefix = "tokenizer.ggml."

// Kinds of tokens, as the format numbers them.
const (
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenByte    = 6
)

// vocabulary is what the metadata says of the tokens.
type vocabulary struct {
	*keys
	model  string // "gpt2" or "llama"
	tokens []string
	kinds  []float64 // by ID; empty when the file does not say
}

// readVocabulary reads the tokens; they are whole UTF-8.
func (f *File) readVocabulary() *vocabulary {
	v := &vocabulary{keys: &keys{file: f}}
	v.model = v.text(tokenizerPrefix+"model", "")
	v.tokens = v.strings(tokenizerPrefix + "tokens")
	v.kinds = v.numbers(tokenizerPrefix + "token_type")
	switch {
	case v.err != nil:
	case v.model != "gpt2" && v.model != "llama":
		v.fail("%q: %q is not supported; supported are gpt2, llama",
			tokenizerPrefix+"model", v.model)
	case len(v.tokens) == 0:
		v.fail("%q is missing", tokenizerPrefix+"tokens")
	case len(v.kinds) != 0 && len(v.kinds) != len(v.tokens):
		v.fail("%d tokens and %d of %q", len(v.tokens), len(v.kinds), tokenizerPrefix+"token_type")
	}
	for id, text := range v.tokens {
		if !utf8.ValidString(text) {
			v.fail("%q: token %d is not UTF-8: %q", tokenizerPrefix+"tokens", id, text)
		}
	}
	return v
}

func (v *vocabulary) kind(id int) int {
	if id < len(v.kinds) {
		return int(v.kinds[id])
	}
	return 0
}

// addedToken is an entry of added_tokens.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LeftStrip  bool   `json:"lstrip"`
	RightStrip bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// tokenizer is the tokenizer.json of the folder.
func (f *File) tokenizer() ([]byte, error) {
	v := f.readVocabulary()
	model := map[string]any{"type": "BPE"}
	out := map[string]any{"version": "1.0", "model": model}
	vocab := make(map[string]int, len(v.tokens))
	added := []addedToken{} // A list also where there are none.
	for id, text := range v.tokens {
		if other, ok := vocab[text]; ok {
			v.fail("%q: tokens %d and %d are both %q", tokenizerPrefix+"tokens", other, id, text)
		}
		vocab[text] = id
		if k := v.kind(id); k == tokenControl || k == tokenUser || k == tokenUnknown {
			added = append(added, addedToken{ID: id, Content: text, Special: k != tokenUser})
		}
	}
	model["vocab"], out["added_tokens"] = vocab, added
	if v.err == nil && v.model == "gpt2" {
		v.byteLevel(out, model)
		v.checkMerges(vocab)
	} else if v.err == nil {
		v.sentencePiece(out, model)
	}
	v.around(out)
	if v.err != nil {
		return nil, v.err
	}
	return json.Marshal(out)
}

// part is a component of a tokenizer.json.
type part map[string]any

func sequence(kind, key string, parts ...part) part { return part{"type": kind, key: parts} }

func replace(pattern, content string) part {
	return part{"type": "Replace", "pattern": part{"String": pattern}, "content": content}
}

// byteLevel is a tokenizer of GPT-2's kind: merges in order over a byte-level alphabet, after a
// split that the file names.
func (v *vocabulary) byteLevel(out, model map[string]any) {
	name := v.text(tokenizerPrefix+"pre", "gpt-2")
	pre, ok := splits[name]
	if !ok {
		v.fail("%q: %q is not supported; supported are %s", tokenizerPrefix+"pre", name,
			strings.Join(slices.Sorted(maps.Keys(splits)), ", "))
	}
	merges := v.strings(tokenizerPrefix + "merges")
	if len(merges) == 0 {
		v.fail("%q is missing", tokenizerPrefix+"merges")
	}
	model["merges"], model["ignore_merges"] = merges, pre.whole
	out["pre_tokenizer"] = sequence("Sequence", "pretokenizers", pre.parts...)
	out["decoder"] = part{"type": "ByteLevel"}
	if pre.composed {
		out["normalizer"] = part{"type": "NFC"}
	}
}

// checkMerges wants every merge to be two tokens that make a third: the folder's own reader would
// name a file that nobody has.
func (v *vocabulary) checkMerges(vocab map[string]int) {
	const key = tokenizerPrefix + "merges"
	for i, line := range v.strings(key) {
		if strings.HasPrefix(line, "#version") {
			continue // the first line of the file that merges once were
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			v.fail("%q: merge %d is %.100q, which should be two tokens with a space between", key,
				i, line)
			return
		}
		for _, name := range []string{left, right, left + right} {
			if _, ok := vocab[name]; !ok {
				v.fail("%q: merge %d is %.100q, and %.100q is not among the tokens", key, i,
					line, name)
				return
			}
		}
	}
}

// split is what a byte-level tokenizer does before its merges.
type split struct {
	parts    []part
	whole    bool // a word that is a token is not built by merges
	composed bool // the text is brought to Unicode's form C first
}

// Patterns of the tokenizers that the names stand for, as their own tokenizer.json has them.
const (
	llama3Words = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
		` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Words = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` +
		` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// bytesOf ends a pre-tokenizer in the byte-level alphabet, with or without GPT-2's own pattern.
func bytesOf(pattern bool) part {
	return part{"type": "ByteLevel", "add_prefix_space": false, "use_regex": pattern}
}

func splitBy(pattern string) []part {
	return []part{{"type": "Split", "pattern": part{"Regex": pattern}, "behavior": "Isolated",
		"invert": false}, bytesOf(false)}
}

// splits are the values of tokenizer.ggml.pre, each with those that mean the same. It is never
// written.
var splits = map[string]split{
	"default":   {parts: []part{bytesOf(true)}},
	"gpt-2":     {parts: []part{bytesOf(true)}},
	"smollm":    digitsFirst,
	"starcoder": digitsFirst,
	"refact":    digitsFirst,
	"command-r": digitsFirst,
	"llama-bpe": {parts: splitBy(llama3Words), whole: true},
	"llama3":    {parts: splitBy(llama3Words), whole: true},
	"llama-v3":  {parts: splitBy(llama3Words), whole: true},
	"smaug-bpe": {parts: splitBy(llama3Words)},
	"qwen2":     {parts: splitBy(qwen2Words), composed: true},

	"deepseek-r1-qwen": {parts: splitBy(qwen2Words), composed: true},
}

// digitsFirst keeps every digit alone.
var digitsFirst = split{parts: []part{
	{"type": "Digits", "individual_digits": true}, bytesOf(true)}}

// sentencePiece is a tokenizer of Llama 2's and Gemma's kind: pieces with scores. The best-scored
// pair is merged first, which is what merges in the order of their results' scores do.
func (v *vocabulary) sentencePiece(out, model map[string]any) {
	model["byte_fallback"], model["fuse_unk"] = true, true
	model["merges"] = v.derivedMerges()
	if id, ok := v.tokenID("unknown_token_id"); ok && id < len(v.tokens) {
		model["unk_token"] = v.tokens[id]
	}
	decode := []part{replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if v.flag(tokenizerPrefix+"add_space_prefix", true) {
		out["normalizer"] = sequence("Sequence", "normalizers",
			part{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
		decode = append(decode, part{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	} else {
		out["normalizer"] = replace(" ", "▁")
	}
	out["decoder"] = sequence("Sequence", "decoders", decode...)
}

// derived is a merge of two pieces into the piece with the given score.
type derived struct {
	left, right string
	score       float64
	leftID      int
	rightID     int
}

// derivedMerges lists every pair of pieces that together are a piece, the best score first.
func (v *vocabulary) derivedMerges() [][2]string {
	scores := v.numbers(tokenizerPrefix + "scores")
	if len(scores) != len(v.tokens) {
		v.fail("%d tokens and %d of %q", len(v.tokens), len(scores), tokenizerPrefix+"scores")
		return nil
	}
	ids := make(map[string]int, len(v.tokens))
	for id, text := range v.tokens {
		if k := v.kind(id); k != tokenControl && k != tokenUnknown && k != tokenByte {
			ids[text] = id
		}
	}
	var list []derived
	for text, id := range ids {
		if len(text) > maxPiece || v.kind(id) == tokenUser {
			continue
		}
		for at := range text {
			left, ok1 := ids[text[:at]]
			right, ok2 := ids[text[at:]]
			if at > 0 && ok1 && ok2 {
				list = append(list, derived{text[:at], text[at:], scores[id], left, right})
			}
		}
	}
	slices.SortFunc(list, func(a, b derived) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.leftID, b.leftID),
			cmp.Compare(a.rightID, b.rightID))
	})
	merges := make([][2]string, len(list))
	for i, d := range list {
		merges[i] = [2]string{d.left, d.right}
	}
	return merges
}

// maxPiece bounds the bytes of a piece that merges can build: looking for its halves takes the
// square of its length.
const maxPiece = 1024

// around puts the first token in front, and the last one behind, where the file asks for them.
func (v *vocabulary) around(out map[string]any) {
	pieces := []part{{"Sequence": part{"id": "A", "type_id": 0}}}
	special := part{}
	token := func(flag, key string, fallback bool) (part, bool) {
		id, ok := v.tokenID(key)
		if !v.flag(tokenizerPrefix+flag, fallback) || !ok || id >= len(v.tokens) {
			return nil, false
		}
		name := v.tokens[id]
		special[name] = part{"id": name, "ids": []int{id}, "tokens": []string{name}}
		return part{"SpecialToken": part{"id": name, "type_id": 0}}, true
	}
	if p, ok := token("add_bos_token", "bos_token_id", v.model == "llama"); ok {
		pieces = append([]part{p}, pieces...)
	}
	if p, ok := token("add_eos_token", "eos_token_id", false); ok {
		pieces = append(pieces, p)
	}
	if len(special) > 0 {
		out["post_processor"] = part{"type": "TemplateProcessing", "single": pieces,
			"pair": pieces, "special_tokens": special}
	}
}

// tokenizerConfig is the tokenizer_config.json: names of special tokens, and the chat template.
func (f *File) tokenizerConfig() ([]byte, error) {
	v := f.readVocabulary()
	out := map[string]any{}
	for name, key := range map[string]string{
		"bos_token": "bos_token_id", "eos_token": "eos_token_id",
		"unk_token": "unknown_token_id", "pad_token": "padding_token_id",
	} {
		if id, ok := v.tokenID(key); ok && id < len(v.tokens) {
			out[name] = v.tokens[id]
		} else if ok {
			v.fail("%q is %d, and there are %d tokens", tokenizerPrefix+key, id, len(v.tokens))
		}
	}
	templates := []part{}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if own, ok := strings.CutPrefix(name, templateKey+"."); ok {
			templates = append(templates, part{"name": own, "template": v.text(name, "")})
		}
	}
	if text := v.text(templateKey, ""); text != "" && len(templates) == 0 {
		out["chat_template"] = text
	} else if text != "" {
		templates = append(templates, part{"name": "default", "template": text})
		out["chat_template"] = templates
	}
	if v.err != nil {
		return nil, v.err
	}
	return json.Marshal(out)
}

const templateKey = "tokenizer.chat_template"

// endings are the tokens that end a text: the file's own, and those that models end a turn with
// and files leave out, where they are control tokens. The names are those of the turn formats of
// ChatML, Llama 3, Gemma, Phi and GPT-2.
func (k *keys) endings() []int {
	var ids []int
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id, ok := k.tokenID(key); ok {
			ids = append(ids, id)
		}
	}
	v := &vocabulary{keys: k, tokens: k.strings(tokenizerPrefix + "tokens"),
		kinds: k.numbers(tokenizerPrefix + "token_type")}
	for id, text := range v.tokens {
		switch text {
		case "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
			"<|end_of_text|>":
			if v.kind(id) == tokenControl {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
