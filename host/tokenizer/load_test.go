package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// change replaces one place of a good tokenizer.json; want is part of the error.
type change struct{ old, new, want string }

// hostile lists changes that each give one error, which names the place.
func hostile() []change {
	return append(hostileModel(), hostileParts()...)
}

func hostileModel() []change {
	return []change{
		{`"dropout": null`, `"dropout": 0.1`, "model.dropout: "},
		{`"type": "BPE"`, `"type": "Unigram"`, `model.type: "Unigram" is not supported`},
		{`"type": "BPE"`, `"type": 3`, "model.type: byte"},
		{`"continuing_subword_prefix": null`, `"continuing_subword_prefix": "##"`,
			"model.continuing_subword_prefix: "},
		{`"fuse_unk": true`, `"fuse_unk": "yes"`, `model.fuse_unk: `},
		{`"ignore_merges": false`, `"shuffle": false`, "model.shuffle: this setting is not"},
		{`"unk_token": "<unk>"`, `"unk_token": "<unknown>"`, `model.unk_token: "<unknown>"`},
		{`"▁ab": 11`, `"▁ab": 11000000`, "token ID 11000000 is too large for 15 tokens"},
		{`"▁ab": 11`, `"▁ab": 99999999999`, "model.vocab.▁ab: "},
		{`"▁ab": 11`, `"▁ab": -1`, "model.vocab.▁ab: "},
		{`"▁ab": 11`, `"▁ab": 1.5`, "model.vocab.▁ab: "},
		{`"▁ab": 11`, `"▁ab": "11"`, "model.vocab.▁ab: "},
		{`"▁ab": 11`, `"▁ab": 10`, `model.vocab: "▁a" and "▁ab" are both 10`},
		{`"a b"`, `"a q"`, `model.merges[0]: the token "q" is not in model.vocab`},
		{`"a b"`, `"b a"`, `model.merges[0]: the token "ba" is not in model.vocab`},
		{`"a b"`, `"ab"`, `model.merges[0]: "ab" should be two tokens`},
		{`"a b"`, `"a b c"`, `model.merges[0]: "a b c" should be two tokens`},
		{`"a b"`, `7`, "model.merges[0]: byte"},
		{`["▁", "ab"]`, `["▁"]`, "model.merges[3]: a merge has two sides"},
		{`["▁", "ab"]`, `["▁", "a", "b"]`, "model.merges[3][2]: a merge has two sides"},
		{`"merges"`, `"mergers"`, "model.mergers: "},
		{`"model"`, `"modal"`, "model: is missing"},
		{`"content": "<s>"`, `"content": "<s2>"`, `added_tokens[1].id: "<s>" and "<s2>" are both`},
		{`{"id": 1, "content": "<s>"`, `{"id": 5, "content": "<s>"`, `added_tokens[1].id: "<s>"`},
		{`{"id": 12,`, `{"ident": 12,`, "added_tokens[2].ident: this setting is not supported"},
		{`{"id": 12,`, `{`, "added_tokens[2].id: is missing"},
		{`{"id": 12,`, `{"id": 4000,`, "token ID 4000 is too large"},
		{`"special": false}`, `"special": null}`, "added_tokens[2].special: "},
	}
}

func hostileParts() []change {
	return []change{
		{`"type": "Prepend"`, `"type": "Precompiled"`,
			`normalizer.normalizers[0].type: "Precompiled" is not supported`},
		{`"prepend": "▁"`, `"prepend": 1`, "normalizer.normalizers[0].prepend: "},
		{`"prepend": "▁"`, `"prepend": "▁", "twice": true`, "normalizer.normalizers[0].twice: "},
		{`{"String": " "}`, `{"Regex": "(?<=a)b"}`, `normalizer.normalizers[1].pattern.Regex: `},
		{`{"String": " "}`, `{}`, "normalizer.normalizers[1].pattern: should hold"},
		{`"normalizers": [`, `"normalizers": 3, "x": [`, "normalizer.normalizers: "},
		{`"pre_tokenizer": null`, `"pre_tokenizer": {}`, "pre_tokenizer.type: is missing"},
		{`"pre_tokenizer": null`, `"pre_tokenizer": []`, "pre_tokenizer: should be an object"},
		{`"pre_tokenizer": null`, `"pre_tokenizer": {"type": "BertPreTokenizer"}`,
			"pre_tokenizer.type: "},
		{`"pre_tokenizer": null`, `"pre_tokenizer": {"type": "Split", "invert": false,
			"pattern": {"Regex": "a(?=b)"}, "behavior": "Isolated"}`,
			`pre_tokenizer.pattern.Regex: the pattern "a(?=b)" is not`},
		{`"pre_tokenizer": null`, `"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"},
			"behavior": "Sideways"}`, `pre_tokenizer.behavior: "Sideways"`},
		{`"pre_tokenizer": null`, `"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
			{"type": "ByteLevel"}, {"type": "Digits"}]}`, "pre_tokenizer.pretokenizers[1]: "},
		{`"type": "TemplateProcessing"`, `"type": "RobertaProcessing"`, "post_processor.type: "},
		{`"ids": [1]`, `"ids": [77]`, "post_processor.special_tokens: 77 is not in the vocabulary"},
		{`{"Sequence": {"id": "A", "type_id": 0}}`, `{"Sequence": {"id": "B", "type_id": 0}}`,
			"post_processor.single[1]: "},
		{"},\n      {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}", "}",
			"post_processor.single: holds the text 0"},
		{`{"type": "Fuse"}`, `{"type": "CTC"}`, "decoder.decoders[2].type: "},
		{`{"type": "Fuse"}`, `{"type": "ByteLevel"}`, "decoder.decoders[2].type: ByteLevel behind"},
		{`"start": 1`, `"start": -1`, "decoder.decoders[3].start: -1 is negative"},
		{`"content": " ", "start"`, `"content": "ab", "start"`, "decoder.decoders[3].content: "},
		{`"version"`, `"ver\ud800sion"`, "half a surrogate pair"},
		{`"version"`, "\"ver\x01sion\"", "control character"},
		{`"version"`, "\"ver\xffsion\"", "it is not UTF-8"},
	}
}

func TestHostileFiles(t *testing.T) {
	for _, c := range hostile() {
		if !strings.Contains(tinyJSON, c.old) {
			t.Fatalf("%s is not in the tokenizer", c.old)
		}
		data := strings.Replace(tinyJSON, c.old, c.new, 1)
		_, err := Load(fstest.MapFS{mainFile: {Data: []byte(data)}})
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer.json: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %s", c.new, err, c.want)
		}
	}
}

func TestUnsupportedIsTyped(t *testing.T) {
	data := strings.Replace(tinyJSON, `"Prepend"`, `"Nmt"`, 1)
	if _, err := parse([]byte(data)); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestCutFile cuts the file at every place.
func TestCutFile(t *testing.T) {
	for end := range tinyJSON {
		if _, err := parse([]byte(tinyJSON[:end])); err == nil {
			t.Fatalf("the first %d bytes were accepted", end)
		}
	}
	if _, err := parse([]byte(tinyJSON + "x")); err == nil {
		t.Error("something behind the document was accepted")
	}
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + strings.Repeat("]}", 40)
	data := `{"normalizer":` + deep + `,` + tinyJSON[strings.Index(tinyJSON, `"model"`):]
	_, err := parse([]byte(data))
	if err == nil || !strings.Contains(err.Error(), "Sequences in one") {
		t.Error(err)
	}
}

// TestMergesBeforeVocab reads a model whose keys stand in another order.
func TestMergesBeforeVocab(t *testing.T) {
	i, j := strings.Index(tinyJSON, `"vocab"`), strings.Index(tinyJSON, `"merges"`)
	end := strings.LastIndex(tinyJSON, "}\n}")
	data := tinyJSON[:i] + strings.TrimSpace(tinyJSON[j:end]) + "," +
		strings.TrimSuffix(strings.TrimSpace(tinyJSON[i:j]), ",") + tinyJSON[end:]
	tok := load(t, fstest.MapFS{mainFile: {Data: []byte(data)}})
	if got := tok.Encode("abc ab", EncodeOptions{}); !slices.Equal(got, []int32{10, 6, 7, 10, 6}) &&
		!slices.Equal(got, tiny(t).Encode("abc ab", EncodeOptions{})) {
		t.Error(got)
	}
}

func TestConfigFiles(t *testing.T) {
	for _, c := range []struct {
		name, file string
		data       string
		bos        int32
		eos        []int32
		special    []int32 // "a" with special tokens
	}{
		{"none", "", "", 1, nil, []int32{1, 10}},
		{"names", configName, `{"bos_token": "<unk>", "eos_token": {"content": "<s>"}}`, 0,
			[]int32{1}, []int32{1, 10}},
		{"map", "special_tokens_map.json", `{"eos_token": "<tool>"}`, 1, []int32{12},
			[]int32{1, 10}},
		{"generation", "generation_config.json", `{"eos_token_id": [12, 1, 12]}`, 1, []int32{1, 12},
			[]int32{1, 10}},
		{"one end", "generation_config.json", `{"eos_token_id": 3}`, 1, []int32{3}, []int32{1, 10}},
		{"no end", "generation_config.json", `{"eos_token_id": null}`, 1, nil, []int32{1, 10}},
		{"no BOS", configName, `{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false}`,
			1, nil, []int32{10}},
		{"EOS", configName, `{"tokenizer_class": "LlamaTokenizer", "add_eos_token": true,
			"eos_token": "<tool>"}`, 1, []int32{12}, []int32{1, 10, 12}},
		{"another class", configName, `{"tokenizer_class": "PreTrainedTokenizerFast",
			"add_bos_token": false}`, 1, nil, []int32{1, 10}},
	} {
		files := fstest.MapFS{mainFile: {Data: []byte(tinyJSON)}}
		if c.file != "" {
			files[c.file] = &fstest.MapFile{Data: []byte(c.data)}
		}
		tok := load(t, files)
		bos, ok := tok.BOS()
		if !ok || bos != c.bos || !slices.Equal(tok.EOS(), c.eos) {
			t.Errorf("%s: BOS %d, %v, EOS %v", c.name, bos, ok, tok.EOS())
		}
		if got := tok.Encode("a", EncodeOptions{AddSpecial: true}); !slices.Equal(got, c.special) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestBadConfigFiles(t *testing.T) {
	for _, c := range []struct{ file, data, want string }{
		{configName, `{`, "tokenizer_config.json: "},
		{configName, `{"bos_token": 7}`, "tokenizer_config.json: "},
		{configName, `{"eos_token": "</s>"}`, `tokenizer_config.json: eos_token: "</s>" is not in`},
		{configName, `{"chat_template": 7}`, "tokenizer_config.json: chat_template: found 7"},
		{"generation_config.json", `{"eos_token_id": "x"}`, "generation_config.json: "},
		{"special_tokens_map.json", `[]`, "special_tokens_map.json: "},
	} {
		files := fstest.MapFS{
			mainFile: {Data: []byte(tinyJSON)}, c.file: {Data: []byte(c.data)},
		}
		if _, err := Load(files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %s", c.data, err, c.want)
		}
	}
}

func TestVocabulary(t *testing.T) {
	tok := tiny(t)
	if tok.VocabSize() != 13 {
		t.Errorf("%d tokens", tok.VocabSize())
	}
	for id, want := range map[int32][2]string{
		0: {"<unk>", "<unk>"}, 2: {"<0xC3>", "\xc3"}, 10: {"▁a", " a"}, 12: {"<tool>", "<tool>"},
		13: {"", ""}, -1: {"", ""}, 1 << 30: {"", ""},
	} {
		if got := tok.Token(id); got != want[0] {
			t.Errorf("token %d is %q", id, got)
		}
		if got := tok.TokenBytes(id); string(got) != want[1] {
			t.Errorf("token %d has the bytes %q", id, got)
		}
	}
	if !tok.IsSpecial(1) || tok.IsSpecial(12) || tok.IsSpecial(5) || tok.IsSpecial(-1) {
		t.Error("wrong tokens are special")
	}
}

// FuzzLoad changes a tokenizer.json. One that loads must encode and decode without harm.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(tinyJSON), "abc <tool> é")
	v := readVariants(f)
	for i, c := range v.Cases {
		if i%9 == 0 && c.Base == "piece" {
			f.Add(v.document(f, i), v.Texts[i%len(v.Texts)])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := parse(data)
		if err != nil {
			var unmarshal *json.SyntaxError
			if errors.As(err, &unmarshal) && err.Error() == "" {
				t.Error("an empty error")
			}
			return
		}
		ids := tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
		checkStream(t, tok, ids, false)
	})
}
