package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/tokenizer"
)

// TestRunSaysWhatBecomesOfThePrompt: a prompt from a pipe or from the command line is continued as
// it is, which is said where the model could chat; --chat gives the tokens of a chat's first turn.
func TestRunSaysWhatBecomesOfThePrompt(t *testing.T) {
	l, err := loadModel(config.Default(), quietLoading())
	if err != nil {
		t.Fatal(err)
	}
	m := l.api
	encode := func(text string, special bool) []int32 {
		return m.Tokenizer.Encode(text, tokenizer.EncodeOptions{AddSpecial: special,
			ParseSpecial: true})
	}
	text, err := m.Template.Render(tokenizer.MessagesJSON([]tokenizer.Message{
		{Role: "user", Content: "Who goes there?"}}),
		tokenizer.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"run", "--max-tokens", "4", "--temperature", "0", "--json"}
	for _, c := range []struct {
		stdin string
		args  []string
		want  []int32
		says  string
	}{
		{"Who goes there?\n", nil, encode("Who goes there?", true), "continued as it is; --chat"},
		{"", []string{"Who goes there?"}, encode("Who goes there?", true), "--chat makes it"},
		{"Who goes there?\n", []string{"--chat"}, encode(text, false), "a user's message, in"},
		{"", []string{"--chat", "Who goes there?"}, encode(text, false), "a user's message, in"},
		{"", []string{"--token-ids", "1,5,9"}, []int32{1, 5, 9}, ""},
	} {
		got := invoke(t, c.stdin, append(flags, c.args...)...)
		var d document
		if err := json.Unmarshal([]byte(got.out), &d); err != nil || got.code != 0 {
			t.Fatalf("%v: %v %+v", c.args, err, got)
		}
		if !slices.Equal(d.PromptTokenIDs, c.want) {
			t.Errorf("%v: prompt %v, want %v", c.args, d.PromptTokenIDs, c.want)
		}
		if !strings.Contains(got.err, c.says) || c.says == "" &&
			strings.Contains(got.err, "  prompt ") {
			t.Errorf("%v says %s", c.args, got.err)
		}
	}
	if got := invoke(t, "", "run", "--chat", "--token-ids", "1"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}
