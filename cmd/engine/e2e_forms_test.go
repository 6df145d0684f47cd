package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kvrelay/engine/host/openai"
)

// form is a schema of the collection in host/constrain; refused names the keyword for which it is.
type form struct {
	Schema  json.RawMessage `json:"schema"`
	Refused string          `json:"refused"`
}

func forms(t *testing.T) []form {
	t.Helper()
	path := filepath.Join("..", "..", "host", "constrain", "testdata", "schemas.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []form
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f form) bool {
		return f.Schema[0] != '{' // On the wire a schema is an object.
	})
}

// TestSchemasAtHighTemperature has the embedded model answer in the form of 200 schemas at a
// temperature at which it says anything, alone and by two instances behind a router.
func TestSchemasAtHighTemperature(t *testing.T) {
	alone := serveNode(t, "version = 1\n[node]\nrole = \"all\"\n")
	c := startCluster(t, clusterOptions{})
	var wait sync.WaitGroup
	gate := make(chan struct{}, 8)
	for i, f := range forms(t) {
		wait.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			one := f.answer(t, alone.api, i)
			if two := f.answer(t, c.router.api, i); two != one {
				t.Errorf("schema %d: alone %q, handed over %q", i, one, two)
			}
		})
	}
	wait.Wait()
	rest(t, alone)
}

// answer asks for an output of a form, judges it and returns it; of a schema that is refused, it
// judges the refusal.
func (f form) answer(t *testing.T, url string, seed int) string {
	r := post(t, url+"/v1/chat/completions", fields{
		"messages":    []fields{{"role": "user", "content": "Who was in the beginning?"}},
		"temperature": 1.5, "seed": seed, "max_tokens": 440,
		"response_format": fields{"type": "json_schema",
			"json_schema": fields{"name": "form", "strict": true, "schema": f.Schema}},
	})
	if f.Refused != "" {
		code, message := r.failure(t)
		if code != "invalid_json_schema" || !strings.Contains(message, `"`+f.Refused+`"`) {
			t.Errorf("%s: %s: %s", f.Schema, code, message)
		}
		return r.body
	}
	var chat openai.ChatResponse
	r.decode(t, &chat)
	text := chat.Choices[0].Message.Content
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("%s: %q: %v", f.Schema, text, err)
		return text
	}
	if err := f.compile(t).Validate(value); err != nil {
		t.Errorf("%s: %s: %v", f.Schema, text, err)
	}
	return text
}

// compile makes the judge: a library that shares nothing with ours.
func (f form) compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(f.Schema)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
