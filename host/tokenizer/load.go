package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"
)

// mainFile is the one file that has to be there.
const mainFile = "tokenizer.json"

// Load reads a model folder. The error says which file and which JSON path is at fault.
func Load(fsys fs.FS) (*Tokenizer, error) {
	data, err := fs.ReadFile(fsys, mainFile)
	if err != nil {
		return nil, fmt.Errorf("reading the tokenizer: %w", err)
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mainFile, err)
	}
	if err := t.configure(fsys); err != nil {
		return nil, err
	}
	return t, nil
}

// document is a tokenizer.json, its small parts still unread.
type document struct {
	added         []addedToken
	normalizer    json.RawMessage
	preTokenizer  json.RawMessage
	postProcessor json.RawMessage
	decoder       json.RawMessage
	model         *modelPart
}

// parse reads a tokenizer.json. Its "truncation" and "padding" are settings of training
// batches: an engine shortens no prompt unasked, so they are not looked at.
func parse(data []byte) (*Tokenizer, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	r := &jsonReader{data: data}
	d := &document{}
	if err := r.object(func(key string) error { return d.read(r, key) }); err != nil {
		return nil, err
	}
	if r.peek() != 0 {
		return nil, r.fail("something follows the end of the document")
	}
	if d.model == nil {
		return nil, &pathError{"model", errors.New("is missing")}
	}
	return d.build()
}

func (d *document) read(r *jsonReader, key string) (err error) {
	switch key {
	case "added_tokens":
		return r.array(func(int) error {
			t, err := readAddedToken(r)
			d.added = append(d.added, t)
			return err
		})
	case "model":
		d.model, err = readModel(r)
		return err
	}
	value, err := r.skip()
	switch key {
	case "normalizer":
		d.normalizer = value
	case "pre_tokenizer":
		d.preTokenizer = value
	case "post_processor":
		d.postProcessor = value
	case "decoder":
		d.decoder = value
	}
	return err
}

func readAddedToken(r *jsonReader) (t addedToken, err error) {
	t.id, t.normalized = -1, true
	err = r.object(func(key string) (err error) {
		switch key {
		case "id":
			t.id, err = r.tokenID()
		case "content":
			var content []byte
			content, err = r.text()
			t.content = string(content)
		case "single_word":
			t.singleWord, err = r.boolean()
		case "lstrip":
			t.lstrip, err = r.boolean()
		case "rstrip":
			t.rstrip, err = r.boolean()
		case "normalized":
			t.normalized, err = r.boolean()
		case "special":
			t.special, err = r.boolean()
		default:
			err = fmt.Errorf("this setting is %w", ErrUnsupported)
		}
		return err
	})
	if err == nil && t.id < 0 {
		err = &pathError{"id", errors.New("is missing")}
	}
	return t, err
}

// build makes the tokenizer of a document.
func (d *document) build() (t *Tokenizer, err error) {
	t = &Tokenizer{}
	if t.tokens, err = d.tokens(); err != nil {
		return nil, err
	}
	if t.normalizer, err = newNormalizer(d.normalizer); err != nil {
		return nil, err
	}
	if t.pre, err = newPreTokenizer(d.preTokenizer); err != nil {
		return nil, err
	}
	if t.model, err = d.model.build(t.tokens, t.pre.byteLevel); err != nil {
		return nil, at("model", err)
	}
	if t.around, err = newTemplate(d.postProcessor, t); err != nil {
		return nil, err
	}
	if t.decoder, err = newDecoder(d.decoder); err != nil {
		return nil, err
	}
	var early, late []addedToken
	for _, token := range d.added {
		if token.normalized {
			late = append(late, token)
		} else {
			early = append(early, token)
		}
	}
	t.added = newAddedMatcher(early, func(a addedToken) string { return a.content })
	t.addedLate = newAddedMatcher(late, func(a addedToken) string {
		return t.normalizer.apply(a.content)
	})
	return t, nil
}

// maxHoles is how many IDs may stand for nothing, beside as many as stand for something.
const maxHoles = 1024

// tokens orders the vocabulary and the added tokens by ID.
func (d *document) tokens() ([]vocabToken, error) {
	size := 0
	for _, id := range d.model.ids {
		size = max(size, int(id)+1)
	}
	for _, t := range d.added {
		size = max(size, int(t.id)+1)
	}
	if count := len(d.model.ids) + len(d.added); size > 2*count+maxHoles {
		return nil, fmt.Errorf("token ID %d is too large for %d tokens", size-1, count)
	}
	tokens := make([]vocabToken, size)
	for i, id := range d.model.ids {
		name := d.model.names[i]
		if t := &tokens[id]; t.known && t.text != name {
			return nil, &pathError{"model.vocab", twice(t.text, name, id)}
		}
		tokens[id] = vocabToken{text: name, known: true}
	}
	for i, a := range d.added {
		t := &tokens[a.id]
		path := "added_tokens" + index(i) + ".id"
		if id, ok := d.model.vocab[a.content]; ok && id != a.id {
			return nil, &pathError{path, fmt.Errorf("%q is %d here and %d in model.vocab",
				a.content, a.id, id)}
		}
		if t.known && t.text != a.content {
			return nil, &pathError{path, twice(t.text, a.content, a.id)}
		}
		*t = vocabToken{text: a.content, known: true, special: t.special || a.special}
	}
	return tokens, nil
}

func twice(a, b string, id int32) error { return fmt.Errorf("%q and %q are both %d", a, b, id) }
