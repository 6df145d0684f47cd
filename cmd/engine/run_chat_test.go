package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/tokenizer"
)

// talk is a chat whose engines are a function and whose user is a test.
type talk struct {
	*chat
	lines      chan typed
	interrupts chan os.Signal
	out, err   bytes.Buffer
	asked      []generation.Request
	ended      bool
}

// newTalk begins a chat in the bubble of a synctest; answer says what the engines give.
func newTalk(t *testing.T, answer func(context.Context, generation.Request) (ran, error)) *talk {
	t.Helper()
	tok, err := tokenizer.Load(embedded.FS())
	if err != nil {
		t.Fatal(err)
	}
	template, err := tok.ChatTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{lines: make(chan typed), interrupts: make(chan os.Signal, 1)}
	k.chat = &chat{
		streams: streams{out: &k.out, err: &k.err}, lines: k.lines, interrupts: k.interrupts,
		model:  &api.Model{Tokenizer: tok, Template: template, Context: 64},
		policy: func() (int64, time.Duration) { return int64(len(k.asked)), 0 },
	}
	k.generate = func(ctx context.Context, ask generation.Request, text func([]int32)) (ran,
		error) {
		k.asked = append(k.asked, ask)
		r, err := answer(ctx, ask)
		text(r.tokens)
		return r, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if err := k.loop(ctx); err != nil {
			t.Error(err)
		}
		k.ended = true
	}()
	t.Cleanup(cancel)
	synctest.Wait()
	return k
}

// say types a line and waits until nothing more happens.
func (k *talk) say(text string) {
	k.lines <- typed{text: text}
	synctest.Wait()
}

func (k *talk) interrupt() {
	k.interrupts <- os.Interrupt
	synctest.Wait()
}

// told is what was shown on stderr since it was asked last.
func (k *talk) told() string {
	text := k.err.String()
	k.err.Reset()
	return text
}

// echo answers with the tokens of a word.
func echo(k **talk, text string) func(context.Context, generation.Request) (ran, error) {
	return func(context.Context, generation.Request) (ran, error) {
		ids := (*k).model.Tokenizer.Encode(text, tokenizer.EncodeOptions{})
		return ran{tokens: ids, finish: generation.FinishStop, cached: 7,
			sent: generation.Sent{Chunks: 1, Bytes: 2048}}, nil
	}
}

func TestChatKeepsTheConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *talk
		k = newTalk(t, echo(&k, "yes"))
		k.say("one")
		k.say("two \\")
		k.say("lines")
		if got := k.out.String(); got != "yes\nyes\n" {
			t.Errorf("said %q", got)
		}
		k.say("/system be brief")
		k.say("three")
		text := k.model.Tokenizer.Decode(k.asked[2].Prompt, false)
		want, err := k.model.Template.Render(tokenizer.MessagesJSON([]tokenizer.Message{
			{Role: "system", Content: "be brief"}, {Role: "user", Content: "one"},
			{Role: "assistant", Content: "yes"}, {Role: "user", Content: "two \nlines"},
			{Role: "assistant", Content: "yes"}, {Role: "user", Content: "three"}}),
			tokenizer.RenderOptions{AddGenerationPrompt: true})
		if err != nil || text != want {
			t.Errorf("asked %q, want %q, %v", text, want, err)
		}
		ids := map[string]bool{}
		for _, ask := range k.asked {
			ids[ask.ID] = true
		}
		if len(ids) != 3 {
			t.Errorf("requests share an id: %v", ids)
		}
		k.told()
		k.say("/stats")
		for _, want := range []string{"of 64 tokens · 3 turns", "cached 7", "kv 2.0 KiB sent",
			"policy 1 calls", "tokens (stop)", "prefill ", " · first "} {
			if !strings.Contains(k.err.String(), want) {
				t.Errorf("%s\nlacks %q", k.err.String(), want)
			}
		}
		k.say("/new")
		k.say("again")
		if n := len(k.turns); n != 2 {
			t.Errorf("%d messages after /new and one turn", n)
		}
	})
}

// TestChatRefusesWhatDoesNotFit: with the numbers, and without losing what was said before.
func TestChatRefusesWhatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *talk
		k = newTalk(t, echo(&k, "yes"))
		k.say("one")
		k.say(strings.Repeat("word ", 100))
		told := k.told()
		if !strings.Contains(told, "the context has 64") || !strings.Contains(told, "/new") ||
			len(k.asked) != 1 || len(k.turns) != 2 {
			t.Errorf("%d asked, %d messages: %s", len(k.asked), len(k.turns), told)
		}
		k.lines <- typed{err: errors.New("too long for a terminal")}
		synctest.Wait()
		if told := k.told(); !strings.Contains(told, "error: too long for a terminal") {
			t.Error(told)
		}
		k.say("two")
		if len(k.asked) != 2 || len(k.turns) != 4 {
			t.Errorf("%d asked, %d messages", len(k.asked), len(k.turns))
		}
	})
}

// TestChatTakesBackWhatFails: an error of the engines is shown, and the loop goes on.
func TestChatTakesBackWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t, func(context.Context, generation.Request) (ran, error) {
			return ran{}, errors.New("out of order")
		})
		k.say("one")
		if told := k.told(); !strings.Contains(told, "error: out of order\n>>> ") ||
			len(k.turns) != 0 || k.ended {
			t.Errorf("%v %v", told, k.turns)
		}
	})
}

// TestChatInterrupts: the first Ctrl-C ends an answer, of which the part that came stays; one more
// leaves. Between two that are apart the loop goes on.
func TestChatInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *talk
		part := ""
		k = newTalk(t, func(ctx context.Context, _ generation.Request) (ran, error) {
			<-ctx.Done()
			ids := k.model.Tokenizer.Encode(part, tokenizer.EncodeOptions{})
			return ran{tokens: ids}, ctx.Err()
		})
		k.say("one")
		k.interrupt()
		told := k.told()
		if !strings.Contains(told, "stopped after 0 tokens") || len(k.turns) != 0 {
			t.Errorf("%s %v", told, k.turns)
		}
		part = "half"
		k.say("two")
		k.interrupt()
		if told := k.told(); !strings.Contains(told, "stopped after ") || len(k.turns) != 2 ||
			k.turns[1].Content != "half" {
			t.Errorf("%s %v", told, k.turns)
		}
		k.say("/stats")
		if told := k.told(); !strings.Contains(told, "(stopped)") {
			t.Error(told)
		}
		k.interrupt()
		if told := k.told(); k.ended || !strings.Contains(told, "Ctrl-C again leaves") {
			t.Errorf("ended %v: %s", k.ended, told)
		}
		k.say("") // It disarms.
		k.interrupt()
		if k.ended {
			t.Error("one interrupt has ended the loop")
		}
		k.say("three")
		k.interrupt()
		k.interrupt()
		if !k.ended {
			t.Error("two interrupts have not ended the loop")
		}
	})
}

func TestChatLeaves(t *testing.T) {
	for name, leave := range map[string]func(*talk){
		"/quit":  func(k *talk) { k.say("/quit") },
		"Ctrl-D": func(k *talk) { close(k.lines) },
		"a half line": func(k *talk) {
			k.say(`half \`)
			close(k.lines)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newTalk(t, nil)
			synctest.Wait()
			leave(k)
			synctest.Wait()
			if !k.ended {
				t.Errorf("%s did not end the loop", name)
			}
		})
	}
}

func TestChatCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *talk
		k = newTalk(t, echo(&k, "yes"))
		for line, want := range map[string]string{
			"/set temperature 3":   "error: temperature 3: between 0 and 2",
			"/set temperature nan": "between 0 and 2",
			"/set top_k -1":        "error: top_k -1: a whole number of at least 0",
			"/set max_tokens 0":    "at least 1",
			"/set seed x":          "error: seed x: a whole number",
			"/set seed":            "error: /set seed needs a value",
			"/set colour red":      `error: there is no setting "colour"`,
			"/stat":                "error: there is no /stat; /help lists",
			"/help":                "/system TEXT",
			"/set":                 "max_tokens what the context leaves · seed random",
			"/stats":               "context  0 of 64 tokens · 0 turns\n>>> ",
		} {
			k.told()
			if k.say(line); !strings.Contains(k.told(), want) {
				t.Errorf("%s: lacks %q", line, want)
			}
		}
		for _, line := range []string{"temperature 0.25", "top_p 0", "top_k 3", "min_p 0.1",
			"max_tokens 5", "seed 7"} {
			k.say("/set " + line)
		}
		k.say(" /not a command")
		got := k.asked[0]
		p := got.Sampling
		if p.Temperature != 0.25 || p.TopP <= 0 || p.TopP > 1e-9 || p.TopK != 3 || p.MinP != 0.1 ||
			got.MaxTokens != 5 || p.Seed != 7 {
			t.Errorf("%+v", got)
		}
	})
}

func TestReadLines(t *testing.T) {
	limit := lineLimit()
	if limit == 0 {
		t.Skip("no terminal limits lines here")
	}
	long := strings.Repeat("x", limit)
	in := fmt.Sprintf("a\r\n\n%s\n%s\nend", long[1:], long)
	var got []string
	for line := range readLines(strings.NewReader(in)) {
		if line.err != nil {
			got = append(got, "error")
			continue
		}
		got = append(got, line.text)
	}
	if want := []string{"a", "", long[1:], "error", "end"}; !slices.Equal(got, want) {
		t.Errorf("%.200q", got)
	}
}

// TestRates: the rate of decode is that of the tokens after the first, and where there are none
// nothing is said of it.
func TestRates(t *testing.T) {
	r := ran{tokens: make([]int32, 41), cached: 2, first: time.Second, decode: 2 * time.Second}
	if got := r.sum(12, "stop"); !strings.Contains(got, "prefill 10 tok/s · decode 20 tok/s") {
		t.Error(got)
	}
	r.tokens, r.decode = r.tokens[:1], 0
	if got := r.sum(12, "stop"); strings.Contains(got, "decode") {
		t.Error(got)
	}
}
