package openai

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDecodeItems(t *testing.T) {
	for body, want := range map[string][]Prompt{
		`"prompt_embeds":"QUJD"`: {{Items: []Item{{Embeds: "QUJD", Path: "prompt_embeds"}}}},
		`"prompt":null,"prompt_embeds":["QQ==","Qg=="]`: {
			{Items: []Item{{Embeds: "QQ==", Path: "prompt_embeds[0]"}}},
			{Items: []Item{{Embeds: "Qg==", Path: "prompt_embeds[1]"}}}},
		`"prompt":"","prompt_embeds":"QQ=="`: {
			{Items: []Item{{Embeds: "QQ==", Path: "prompt_embeds"}}}},
		`"prompt":["a",[5]],"prompt_embeds":null`: nil,
		`"prompt_embeds":"QQ==","prompt":[[1,2],[3]]`: {
			{Items: []Item{{Embeds: "QQ==", Path: "prompt_embeds"}}},
			{Tokens: []int32{1, 2}}, {Tokens: []int32{3}}},
		`"prompt":[[1,2],{"prompt_embeds":"QQ=="},"x",` +
			`{"type":"prompt_embeds","prompt_embeds":"Qg"}]`: {
			{Items: []Item{{Tokens: []int32{1, 2}},
				{Embeds: "QQ==", Path: "prompt[1].prompt_embeds"},
				{Text: "x"}, {Embeds: "Qg", Path: "prompt[3].prompt_embeds"}}}},
	} {
		c, err := DecodeCompletion([]byte("{"+body+"}"), Limits{})
		switch {
		case want == nil:
			if err == nil {
				t.Errorf("%s was accepted", body)
			}
		case err != nil || !reflect.DeepEqual(c.Prompts, want) || c.Unknown != 0:
			t.Errorf("%s: %+v %v", body, c, err)
		}
	}
}

// TestCallPrompts: a prompt with vectors is written as an instance reads it.
func TestCallPrompts(t *testing.T) {
	p := CallPrompt{Tokens: []int32{1, 2, -1, -1, 3, -1},
		Vectors: []CallVectors{{2, 2, []byte("AB")}, {5, 1, []byte("C")}}}
	text, err := json.Marshal(Call{Prompt: p, User: "u", End: new(2)})
	if err != nil {
		t.Fatal(err)
	}
	c, fault := DecodePrepareReceive(text, Limits{})
	if fault != nil {
		t.Fatal(fault)
	}
	want := []Prompt{{Items: []Item{{Tokens: []int32{1, 2}},
		{Embeds: "QUI=", Path: "prompt[1].prompt_embeds"}, {Tokens: []int32{3}},
		{Embeds: "Qw==", Path: "prompt[3].prompt_embeds"}}}}
	if !reflect.DeepEqual(c.Prompts, want) {
		t.Errorf("%s became %+v", text, c.Prompts)
	}
}
