package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// specialTokens is what the small files of a model folder say about single tokens.
type specialTokens struct {
	names  map[string]string // "bos_token" → "<s>"; these are template variables
	bos    int32
	hasBOS bool
	eos    []int32
}

// configFile is the part of tokenizer_config.json that matters here; special_tokens_map.json
// has the same names of tokens.
type configFile struct {
	BOS          tokenName       `json:"bos_token"`
	EOS          tokenName       `json:"eos_token"`
	UNK          tokenName       `json:"unk_token"`
	SEP          tokenName       `json:"sep_token"`
	PAD          tokenName       `json:"pad_token"`
	CLS          tokenName       `json:"cls_token"`
	Mask         tokenName       `json:"mask_token"`
	AddBOS       *bool           `json:"add_bos_token"`
	AddEOS       *bool           `json:"add_eos_token"`
	Class        string          `json:"tokenizer_class"`
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// tokenName is a token in these files: its text, or an object that holds it as "content".
type tokenName string

func (n *tokenName) UnmarshalJSON(raw []byte) error {
	var long struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, (*string)(n)) == nil {
		return nil
	}
	err := json.Unmarshal(raw, &long)
	*n = tokenName(long.Content)
	return err
}

// readOptional decodes a JSON file that need not be there.
func readOptional(fsys fs.FS, name string, into any) error {
	data, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// configure reads the files beside tokenizer.json.
func (t *Tokenizer) configure(fsys fs.FS) error {
	var generation struct {
		EOS tokenIDs `json:"eos_token_id"`
	}
	var config, older configFile
	if err := readOptional(fsys, "generation_config.json", &generation); err != nil {
		return err
	}
	if err := readOptional(fsys, "special_tokens_map.json", &older); err != nil {
		return err
	}
	if err := readOptional(fsys, configName, &config); err != nil {
		return err
	}
	t.special.names = map[string]string{}
	older.addNames(t.special.names)
	config.addNames(t.special.names)
	t.special.eos = generation.EOS
	if err := t.findSpecial(); err != nil {
		return fmt.Errorf("%s: %w", configName, err)
	}
	t.adjustTemplate(config)
	return t.readChat(fsys, config.ChatTemplate)
}

const configName = "tokenizer_config.json"

func (c *configFile) addNames(names map[string]string) {
	for key, name := range map[string]tokenName{
		"bos_token": c.BOS, "eos_token": c.EOS, "unk_token": c.UNK, "sep_token": c.SEP,
		"pad_token": c.PAD, "cls_token": c.CLS, "mask_token": c.Mask,
	} {
		if name != "" {
			names[key] = string(name)
		}
	}
}

// tokenIDs is one ID or a list of them.
type tokenIDs []int32

func (ids *tokenIDs) UnmarshalJSON(raw []byte) error {
	var one *int32
	if json.Unmarshal(raw, &one) != nil {
		return json.Unmarshal(raw, (*[]int32)(ids))
	}
	if one != nil {
		*ids = tokenIDs{*one}
	}
	return nil
}

// findSpecial turns the names of BOS and EOS into IDs. A BOS that no file names is the
// token that the post-processor puts in front.
func (t *Tokenizer) findSpecial() error {
	s := &t.special
	if name := s.names["bos_token"]; name != "" {
		id, ok := t.lookup(name)
		if !ok {
			return &pathError{"bos_token", fmt.Errorf("%q is not in the vocabulary", name)}
		}
		s.bos, s.hasBOS = id, true
	} else if len(t.around.before) == 1 {
		s.bos, s.hasBOS = t.around.before[0], true
		s.names["bos_token"] = t.Token(s.bos)
	}
	if name := s.names["eos_token"]; name != "" {
		id, ok := t.lookup(name)
		if !ok {
			return &pathError{"eos_token", fmt.Errorf("%q is not in the vocabulary", name)}
		}
		s.eos = append(s.eos, id)
	}
	slices.Sort(s.eos)
	s.eos = slices.Compact(s.eos)
	return nil
}

// lookup returns the ID of a token by its name.
func (t *Tokenizer) lookup(name string) (int32, bool) {
	if id, ok := t.model.vocab[name]; ok {
		return id, true
	}
	for id, token := range t.tokens {
		if token.known && token.text == name {
			return int32(id), true
		}
	}
	return 0, false
}

// adjustTemplate follows add_bos_token and add_eos_token for the two families where Hugging
// Face transformers lets them overrule the post-processor.
func (t *Tokenizer) adjustTemplate(config configFile) {
	family := strings.TrimSuffix(config.Class, "Fast")
	if family != "LlamaTokenizer" && family != "GemmaTokenizer" {
		return
	}
	if config.AddBOS != nil && t.special.hasBOS {
		t.around.before = nil
		if *config.AddBOS {
			t.around.before = []int32{t.special.bos}
		}
	}
	if eos, ok := t.lookup(t.special.names["eos_token"]); ok && config.AddEOS != nil {
		t.around.behind = nil
		if *config.AddEOS {
			t.around.behind = []int32{eos}
		}
	}
}
