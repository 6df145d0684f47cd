package openai

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDecodeTokenize(t *testing.T) {
	for body, want := range map[string]Tokenize{
		`{"model":"m","prompt":"a"}`: {Prompt: "a", AddSpecialTokens: true,
			AddGenerationPrompt: true, Chat: Chat{Options: Options{Model: "m"}}},
		`{"prompt":"","add_special_tokens":false,"return_token_strs":true,"what":1}`: {
			AddGenerationPrompt: true, ReturnTokenStrings: true,
			Chat: Chat{Options: Options{Unknown: 1}}},
		`{"messages":[{"role":"user","content":"a"}],"prompt":null,
			"add_generation_prompt":false}`: {
			Chat: Chat{Messages: []Message{{Role: "user", Content: "a"}}}},
		`{"messages":[{"role":"user","content":"a"}],"add_special_tokens":true}`: {
			AddSpecialTokens: true, AddGenerationPrompt: true,
			Chat: Chat{Messages: []Message{{Role: "user", Content: "a"}}}},
	} {
		want.Tools.Choice = ChoiceAuto
		got, err := DecodeTokenize([]byte(body), Limits{})
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", body, got, err, want)
		}
	}
}

func TestDecodeDetokenize(t *testing.T) {
	for body, want := range map[string]Detokenize{
		`{"tokens":[1, 2],"model":"m","what":{}}`: {Model: "m", Tokens: []int32{1, 2}},
		`{"tokens":[]}`: {Tokens: []int32{}},
	} {
		got, err := DecodeDetokenize([]byte(body))
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}

func TestTokenizeOnTheWire(t *testing.T) {
	for want, v := range map[string]any{
		`{"count":2,"max_model_len":9,"tokens":[1,2]}`: TokenizeResponse{Count: 2, MaxModelLen: 9,
			Tokens: []int32{1, 2}},
		`{"count":1,"max_model_len":9,"tokens":[1],"token_strs":["a"]}`: TokenizeResponse{
			Count: 1, MaxModelLen: 9, Tokens: []int32{1}, TokenStrings: []string{"a"}},
		`{"prompt":"a"}`: DetokenizeResponse{Prompt: "a"},
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
