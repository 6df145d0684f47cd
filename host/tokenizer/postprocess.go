package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// template is the post_processor of a tokenizer.json: which tokens go around a text.
type template struct {
	before, behind []int32
}

func newTemplate(raw json.RawMessage, t *Tokenizer) (template, error) {
	var around template
	f, err := component("post_processor", raw)
	if f == nil || err != nil {
		return around, err
	}
	return around, around.add(f, t, 0)
}

// add puts the tokens of the post-processor f around those that are there.
func (a *template) add(f *fields, t *Tokenizer, depth int) error {
	switch f.kind {
	case "Sequence":
		for i, raw := range f.list("processors") {
			if depth == maxNesting {
				return tooDeep(f.path)
			}
			part, err := component(f.part("processors", i), raw)
			if err == nil && part != nil {
				err = a.add(part, t, depth+1)
			}
			if err != nil {
				return err
			}
		}
	case "ByteLevel": // it only mends offsets, which nothing here reports
		f.flag("add_prefix_space", true)
		f.flag("trim_offsets", true)
		f.flag("use_regex", true)
	case "TemplateProcessing":
		a.addTemplate(f, t)
	default:
		return f.unsupported()
	}
	return f.done()
}

// templatePiece is one element of a TemplateProcessing: a special token or the text.
type templatePiece struct {
	SpecialToken *struct{ ID string }
	Sequence     *struct{ ID string }
}

func (a *template) addTemplate(f *fields, t *Tokenizer) {
	var pieces, pair []templatePiece
	var tokens map[string]struct{ IDs []int32 }
	f.read("single", &pieces, "an array of template pieces")
	f.read("pair", &pair, "an array of template pieces") // two texts at once: not for us
	f.read("special_tokens", &tokens, "an object of special tokens")
	var before, behind []int32
	texts := 0
	for i, p := range pieces {
		key := "single" + index(i)
		switch {
		case p.Sequence != nil && p.Sequence.ID == "A":
			texts++
			continue
		case p.SpecialToken == nil:
			f.fail(key, errors.New("should be a SpecialToken or the Sequence A"))
			return
		}
		ids := tokens[p.SpecialToken.ID].IDs
		if len(ids) == 0 {
			f.fail(key, fmt.Errorf("%q is not in special_tokens", p.SpecialToken.ID))
		}
		for _, id := range ids {
			if !t.known(id) {
				f.fail("special_tokens", fmt.Errorf("%d is not in the vocabulary", id))
			}
		}
		if texts == 0 {
			before = append(before, ids...)
		} else {
			behind = append(behind, ids...)
		}
	}
	if texts != 1 {
		f.fail("single", fmt.Errorf("holds the text %d times, not once", texts))
	}
	a.before = slices.Concat(before, a.before)
	a.behind = slices.Concat(a.behind, behind)
}
