package constrain

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/tokenizer"
)

// words is the vocabulary of the embedded model.
func words(t testing.TB) *Vocabulary {
	t.Helper()
	tok, err := tokenizer.Load(embedded.FS())
	if err != nil {
		t.Fatal(err)
	}
	return NewVocabulary(tok.VocabSize(), func(id int32) []byte {
		if tok.IsSpecial(id) {
			return nil
		}
		return tok.TokenBytes(id)
	})
}

// testCase is an element of testdata/schemas.json.
type testCase struct {
	Schema  json.RawMessage `json:"schema"`
	Refused string          `json:"refused"`
}

func schemas(t testing.TB) []testCase {
	t.Helper()
	data, err := os.ReadFile("testdata/schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// validator compiles a schema with a library that shares nothing with this package.
func validator(t testing.TB, schema string) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
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

// end is the token that ends an output in these tests.
const end = 1

// walk takes allowed tokens by chance until the output ends, or so many have come, and returns it.
func walk(t *testing.T, f *Form, left int, chance *rand.Rand) (text string) {
	t.Helper()
	s := f.New()
	logits := make([]float32, f.words.size+3)
	for ; left > 0; left-- {
		if s.Least() > left {
			t.Fatalf("%d tokens are needed after %q, and %d are left", s.Least(), text, left)
		}
		clear(logits)
		s.Mask(logits, left, []int32{end})
		var allowed []int32
		for id, l := range logits {
			if !math.IsInf(float64(l), -1) {
				allowed = append(allowed, int32(id))
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("nothing is allowed after %q with %d left", text, left)
		}
		id := allowed[chance.IntN(len(allowed))]
		if id == end {
			return text
		}
		text += string(f.words.text(id))
		if s.Accept(id) {
			return text
		}
	}
	return text
}

func TestSchemas(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	v, all, refused := words(t), schemas(t), 0
	for i, c := range all {
		f, err := Schema(c.Schema, v)
		if c.Refused != "" {
			refused++
			e, ok := errors.AsType[*SchemaError](err)
			if !ok || e.Keyword != c.Refused {
				t.Errorf("%d %s: refused for %v, want %q", i, c.Schema, err, c.Refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%d %s: %v", i, c.Schema, err)
			continue
		}
		valid := validator(t, string(c.Schema))
		least := f.New().Least()
		for _, left := range []int{least, least + 1, least + 9, least + 40, 400} {
			checkOutput(t, c, valid, walk(t, f, left, chance))
		}
	}
	if len(all) != 200 || refused > 20 {
		t.Errorf("%d schemas, %d refused", len(all), refused)
	}
}

func checkOutput(t *testing.T, c testCase, valid *jsonschema.Schema, text string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("%s: %q is not JSON: %v", c.Schema, text, err)
		return
	}
	if err := valid.Validate(value); err != nil {
		t.Errorf("%s: %s: %v", c.Schema, text, err)
	}
}

// TestSharedMasksAreRight compares the masks of states that share theirs with masks of their own.
func TestSharedMasksAreRight(t *testing.T) {
	v := words(t)
	f, err := Schema([]byte(`{"type":"object","properties":{"a":{"type":"string","minLength":2,
		"maxLength":90},"b":{"type":"array","items":{"type":"string","maxLength":60}}},
		"required":["a","b"],"additionalProperties":false}`), v)
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(8, 0))
	shared := 0
	for range 30 {
		s, logits := f.New(), make([]float32, v.size)
		for range 200 {
			clear(logits)
			s.Mask(logits, 400, nil)
			own := make([]uint64, (v.size+63)/64)
			f.mu.Lock()
			most := f.walk(s.at, unreachable, func(id int32) { own[id>>6] |= 1 << (id & 63) })
			if !slices.Equal(own, s.at.mask) || most != s.at.most {
				t.Fatal("a shared mask differs from the state's own")
			}
			if f.alike(s.at) != s.at {
				shared++
			}
			f.mu.Unlock()
			id := int32(chance.IntN(len(logits)))
			for math.IsInf(float64(logits[id]), -1) {
				id = (id + 1) % int32(len(logits))
			}
			if s.Accept(id) {
				break
			}
		}
	}
	if shared < 100 {
		t.Errorf("only %d masks were shared", shared)
	}
}

func TestObjectForm(t *testing.T) {
	f, err := Object(words(t))
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(3, 0))
	for left := 2; left < 200; left += 7 {
		var object map[string]any
		text := walk(t, f, left, chance)
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCallsForm(t *testing.T) {
	calls := Calls{Open: "<c>", Between: "; ", Close: "</c>", Name: `{"name": "`,
		Arguments: `", "arguments": `, Tail: "}", Many: true, Tools: []Tool{
			{Name: `a"b`, Parameters: []byte(`{"type":"object","properties":{"x":{"enum":[1,2]}},
				"required":["x"],"additionalProperties":false}`)}, {Name: "free"}}}
	f, err := calls.Form(words(t))
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(4, 0))
	for range 20 {
		text := walk(t, f, f.New().Least()+chance.IntN(90), chance)
		inner, ok := strings.CutPrefix(text, "<c>")
		inner, ok2 := strings.CutSuffix(inner, "</c>")
		if !ok || !ok2 || inner == "" {
			t.Errorf("%q", text)
		}
	}
	calls.Tools[1].Parameters = []byte(`{"not":{}}`)
	_, err = calls.Form(words(t))
	bad, ok := errors.AsType[*ToolError](err)
	if !ok || bad.Tool != 1 {
		t.Errorf("%v", err)
	}
}

// TestForgetting runs outputs over a machine that forgets what it has learnt again and again.
func TestForgetting(t *testing.T) {
	f, err := Object(words(t))
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(5, 0))
	for range 10 {
		text := ""
		s, logits := f.New(), make([]float32, f.words.size)
		for left := 60; left > 0; left-- {
			f.mu.Lock()
			f.forget()
			f.mu.Unlock()
			clear(logits)
			s.Mask(logits, left, nil)
			id := int32(chance.IntN(len(logits)))
			for math.IsInf(float64(logits[id]), -1) {
				id = (id + 1) % int32(len(logits))
			}
			text += string(f.words.text(id))
			if s.Accept(id) {
				break
			}
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("%q", text)
		}
	}
}

func FuzzSchema(f *testing.F) {
	for _, c := range schemas(f) {
		f.Add(string(c.Schema))
	}
	v := words(f)
	f.Fuzz(func(t *testing.T, schema string) {
		form, err := Schema([]byte(schema), v)
		if err != nil || form.New().Least() > 300 {
			return
		}
		text := walk(t, form, form.New().Least()+20, rand.New(rand.NewPCG(6, 0)))
		if !json.Valid([]byte(text)) {
			t.Errorf("%s: %q", schema, text)
		}
	})
}

// BenchmarkMask is one step of a constrained output whose states are known.
func BenchmarkMask(b *testing.B) {
	f, err := Schema(schemas(b)[2].Schema, words(b))
	if err != nil {
		b.Fatal(err)
	}
	logits, s := make([]float32, f.words.size), f.New()
	for b.Loop() {
		clear(logits)
		s.Mask(logits, 400, []int32{end})
		id := int32(0)
		for math.IsInf(float64(logits[id]), -1) {
			id++
		}
		if s.Accept(id) {
			s = f.New()
		}
	}
}

// BenchmarkFirst compiles a schema and makes the mask of its first state.
func BenchmarkFirst(b *testing.B) {
	schema, v := schemas(b)[2].Schema, words(b)
	logits := make([]float32, v.size)
	for b.Loop() {
		f, err := Schema(schema, v)
		if err != nil {
			b.Fatal(err)
		}
		f.New().Mask(logits, 400, []int32{end})
	}
}

// BenchmarkCold is a token of outputs whose states are all new, compiling not counted.
func BenchmarkCold(b *testing.B) {
	all, v := schemas(b), words(b)
	logits, chance := make([]float32, v.size), rand.New(rand.NewPCG(7, 0))
	var s *State
	left, at := 0, 0
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			for s = nil; s == nil; at++ {
				if f, err := Schema(all[at%len(all)].Schema, v); err == nil {
					s = f.New()
				}
			}
			left = s.Least() + 60
			b.StartTimer()
		}
		clear(logits)
		s.Mask(logits, left, []int32{end})
		id := int32(chance.IntN(len(logits)))
		for math.IsInf(float64(logits[id]), -1) {
			id = (id + 1) % int32(len(logits))
		}
		left--
		if id == end || s.Accept(id) {
			left = 0
		}
	}
}
