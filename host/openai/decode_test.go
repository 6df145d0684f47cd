package openai

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// failure is a bad body, and the code, the path and a part of the message that answer it.
type failure struct{ call, body, code, param, message string }

// failures reads testdata/errors.txt and adds what no text file holds well.
func failures(t *testing.T) []failure {
	t.Helper()
	text, err := os.ReadFile("testdata/errors.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []failure
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range f {
			if f[i] == "-" {
				f[i] = ""
			}
		}
		all = append(all, failure{f[0], f[1], f[2], f[3], f[4]})
	}
	long := strings.Repeat("x", MaxStopSize+1)
	many := strings.Repeat(`"a",`, 16) + `"a"`
	return append(all,
		failure{"completion", ``, "invalid_json", "", "byte 0"},
		failure{"completion", "{\"prompt\":\"\xff\"}", "invalid_json", "", "UTF-8 at byte 11"},
		failure{"completion", strings.Repeat("[", 20000), "invalid_json", "", "depth"},
		failure{"completion", `{"stop":"` + long + `"}`, "invalid_value", "stop", "4097 bytes"},
		failure{"completion", `{"stop":[` + many + `]}`, "invalid_value", "stop", "16"},
	)
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range failures(t) {
		_, err := decode(c.call, []byte(c.body))
		switch {
		case err == nil:
			t.Errorf("%s %.60s: accepted", c.call, c.body)
		case string(err.Code) != c.code || err.Param != c.param ||
			!strings.Contains(err.Message, c.message):
			t.Errorf("%s %.60s: %s at %q: %s", c.call, c.body, err.Code, err.Param, err.Message)
		case len(err.Message) > 300:
			t.Errorf("%s %.60s: the message has %d bytes", c.call, c.body, len(err.Message))
		}
	}
}

// decode calls the decoder of a route.
func decode(call string, body []byte) (any, *Error) {
	switch call {
	case "completion":
		return DecodeCompletion(body, Limits{})
	case "chat":
		return DecodeChat(body, Limits{})
	case "prep_recv":
		return DecodePrepareReceive(body, Limits{})
	case "remote_send":
		return DecodeRemoteSend(body, Limits{})
	case "start_generate":
		return DecodeStartGenerate(body, Limits{})
	case "tokenize":
		return DecodeTokenize(body, Limits{})
	case "detokenize":
		return DecodeDetokenize(body)
	}
	panic(call)
}

func TestDecodeCompletion(t *testing.T) {
	c, err := DecodeCompletion([]byte(` { "model" : "m" , "prompt" : "In the \"beginning\" é" ,
		"temperature": 0.7, "top_p": 0.9, "top_k": -1, "min_p": 1e-2, "seed": -5, "max_tokens": 12,
		"stop": ["a", "b"], "stream": true, "stream_options":
		{"include_usage": true, "continuous_usage_stats": true},
		"n": 1, "user": "u", "logprobs": null, "echo": false, "frequency_penalty": 0.0,
		"debug_config": {"ignore_eos": true, "pinned_system_prompt": true, "what": 1},
		"nobody": {"knows": ["this", {}]}, "store": true, "return_token_ids": true } `), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Completion{Prompts: []Prompt{{Text: `In the "beginning" é`}}, Options: Options{
		Model: "m", Temperature: new(0.7), TopP: new(0.9), TopK: new(-1), MinP: new(0.01),
		Seed: new(int64(-5)), MaxTokens: new(12), Stop: []string{"a", "b"}, Stream: true,
		IncludeUsage: true, ContinuousUsage: true, User: "u", IgnoreEOS: true, PinPrompt: true,
		Unknown: 2, ReturnTokenIDs: true, N: new(1),
		Penalties: Penalties{FrequencyPenalty: new(0.0)},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestDecodePrompts(t *testing.T) {
	for body, want := range map[string][]Prompt{
		`""`:               {{Text: ""}},
		`["a","b"]`:        {{Text: "a"}, {Text: "b"}},
		`[ 1 , 2 ]`:        {{Tokens: []int32{1, 2}}},
		`[[1],[ 2 , 3 ] ]`: {{Tokens: []int32{1}}, {Tokens: []int32{2, 3}}},
		`[2147483647]`:     {{Tokens: []int32{2147483647}}},
	} {
		c, err := DecodeCompletion([]byte(`{"prompt":`+body+`}`), Limits{})
		if err != nil || !reflect.DeepEqual(c.Prompts, want) {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
}

func TestMaxCompletionTokensWins(t *testing.T) {
	for _, body := range []string{
		`{"prompt":"a","max_tokens":5,"max_completion_tokens":7}`,
		`{"prompt":"a","max_completion_tokens":7,"max_tokens":5}`,
	} {
		if c, err := DecodeCompletion([]byte(body), Limits{}); err != nil || *c.MaxTokens != 7 {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
	c, err := DecodeCompletion([]byte(`{"prompt":"a","max_tokens":-1}`), Limits{})
	if err != nil || c.MaxTokens != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// sampled are the fields of item sampling on the wire, for both calls.
const sampled = `"presence_penalty":-2,"frequency_penalty":0.5,"repetition_penalty":1.1,
	"logit_bias":{"5":-100,"7":2.5},"min_tokens":3,"n":2,"priority":-4,"predicted_output":90`

func TestDecodeSampling(t *testing.T) {
	want := Options{
		Penalties: Penalties{PresencePenalty: new(-2.0), FrequencyPenalty: new(0.5),
			RepetitionPenalty: new(1.1), LogitBias: map[int32]float64{5: -100, 7: 2.5}},
		MinTokens: new(3), N: new(2), Priority: new(-4), PredictedOutput: new(90),
		Logprobs: true, TopLogprobs: 5,
	}
	c, err := DecodeCompletion([]byte(`{"prompt":"a","logprobs":5,`+sampled+`}`), Limits{})
	if err != nil || !reflect.DeepEqual(c.Options, want) {
		t.Errorf("completion: %+v, %v", c, err)
	}
	chat, err := DecodeChat([]byte(`{"messages":[{"role":"user","content":"a"}],"logprobs":true,
		"top_logprobs":5,`+sampled+`}`), Limits{})
	if err != nil || !reflect.DeepEqual(chat.Options, want) {
		t.Errorf("chat: %+v, %v", chat, err)
	}
	if _, err := DecodeCompletion([]byte(`{"prompt":"a","n":9}`), Limits{MaxN: 9}); err != nil {
		t.Error(err)
	}
}

func TestDecodeChat(t *testing.T) {
	c, err := DecodeChat([]byte(`{"messages":[
		{"role":"developer","content":"be brief"},
		{"role":"user","name":"eve",
			"content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]},
		{"role":"assistant","content":"","refusal":null,"tool_calls":[]}],
		"tools":[],"tool_choice":"auto","parallel_tool_calls":true,
		"response_format":{"type":"text"},"top_p":0,"n":1.0}`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Message{
		{Role: "system", Content: "be brief"},
		{Role: "user", Content: "a\nb", Name: "eve"},
		{Role: "assistant"},
	}
	if !reflect.DeepEqual(c.Messages, want) || c.Unknown != 0 {
		t.Errorf("got %+v, unknown %d", c.Messages, c.Unknown)
	}
	if *c.TopP <= 0 || *c.TopP > 1e-9 {
		t.Errorf("top_p 0 became %v", *c.TopP)
	}
}

// TestCallsDecode checks that what a router writes is what an instance reads.
func TestCallsDecode(t *testing.T) {
	call := Call{
		Model: "m", Prompt: CallPrompt{Tokens: []int32{1, 403}}, User: "cmpl-1",
		Temperature: new(0.0),
		Seed:        new(int64(3)), MaxTokens: new(4), Stream: true, ReturnTokenIDs: true,
		StreamOptions: &StreamOptions{true},
		DebugConfig:   DebugConfig{IgnoreEOS: true}, Begin: new(1), End: new(-1),
		KVAddrInfo: "abc=", RecvRank: new(4), TopK: new(0), MinP: new(0.5), Stop: []string{"x"},
	}
	body, err := json.Marshal(call)
	if err != nil {
		t.Fatal(err)
	}
	want := Completion{Prompts: []Prompt{{Tokens: []int32{1, 403}}}, Options: Options{
		Model: "m", Temperature: new(0.0), TopK: new(0), MinP: new(0.5), Seed: new(int64(3)),
		MaxTokens: new(4), Stop: []string{"x"}, IgnoreEOS: true, Stream: true, IncludeUsage: true,
		ReturnTokenIDs: true, User: "cmpl-1",
	}}
	got, failure := DecodeRemoteSend(body, Limits{})
	if failure != nil || !reflect.DeepEqual(got.Completion, want) ||
		got.Begin != 1 || got.End != -1 || got.KVAddrInfo != "abc=" || got.RecvRank != 4 {
		t.Errorf("remote_send: %+v, %v", got, failure)
	}
	// As MLC's router makes them: an empty debug_config.
	body = []byte(`{"model":"m","prompt":[1,2,3],"user":"cmpl-1","max_tokens":64,"temperature":0,
		"stream":false,"debug_config":{},"end":-1}`)
	prepare, failure := DecodePrepareReceive(body, Limits{})
	if failure != nil || prepare.End != -1 || prepare.User != "cmpl-1" {
		t.Errorf("prep_recv: %+v, %v", prepare, failure)
	}
	start, failure := DecodeStartGenerate([]byte(`{"prompt":[1,2,3]}`), Limits{})
	if failure != nil || start.Begin != 0 {
		t.Errorf("start_generate: %+v, %v", start, failure)
	}
}

func TestLimits(t *testing.T) {
	l := Limits{MaxStop: 2}
	if _, err := DecodeCompletion([]byte(`{"prompt":"a","stop":["a","b","c"]}`), l); err == nil {
		t.Error("three stop strings pass a limit of two")
	}
	many := `{"prompt":"a"` + strings.Repeat(`,"x":1`, MaxFields) + `}`
	_, err := DecodeCompletion([]byte(many), Limits{})
	if err == nil || err.Code != CodeInvalidValue {
		t.Errorf("too many fields: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":[[1],[2,3]],"stop":["a"],"debug_config":{"ignore_eos":true}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9"}]}],"n":1}`,
		`{"prompt":"\"\\","end":-1,"begin":0,"kv_addr_info":"x","user":"u","stream_options":{}}`,
		`{"prompt":[[1],{"prompt_embeds":"QQ=="},"x"],"prompt_embeds":["Qg=="],"n":2}`,
		`{"prompt":[1,-0,00]}`, "{\"a\\\"\":{\"b\":[]} , \"prompt\" : [ \"\" ] }",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls := "completion chat prep_recv remote_send start_generate tokenize detokenize"
		for call := range strings.FieldsSeq(calls) {
			got, err := decode(call, body)
			if err == nil {
				if !json.Valid(body) {
					t.Fatalf("%s: %q is not JSON and was accepted", call, body)
				}
				continue
			}
			if Lookup(err.Code).Status != 400 || err.Message == "" {
				t.Fatalf("%s: %q: %+v", call, body, err)
			}
			if !reflect.ValueOf(got).IsNil() {
				t.Fatalf("%s: %q: a request beside an error", call, body)
			}
			if json.Valid(body) == (err.Code == CodeInvalidJSON) && !badUTF8(err) {
				t.Fatalf("%s: %q: %+v", call, body, err)
			}
		}
		agree(t, body)
	})
}

func badUTF8(err *Error) bool { return strings.Contains(err.Message, "UTF-8") }

// agree checks the scanner's fields against encoding/json.
func agree(t *testing.T, body []byte) {
	members, err := parse(body)
	if err != nil {
		return
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]json.RawMessage{}
	for _, m := range members {
		got[m.name] = json.RawMessage(m.raw)
		if string(body[m.at:m.at+len(m.raw)]) != m.raw {
			t.Fatalf("%q: field %q is not at byte %d", body, m.name, m.at)
		}
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("%q: fields %q, want %q", body, got, want)
	}
}
