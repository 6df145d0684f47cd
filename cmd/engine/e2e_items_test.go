package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/kvrelay/engine/host/model/embedded"
	"github.com/kvrelay/engine/host/model/safetensors"
	"github.com/kvrelay/engine/host/openai"
)

// table is the embedded model's own table of embeddings.
type table struct {
	width  int
	values []float32
}

func embeddedTable(t *testing.T) table {
	t.Helper()
	w, err := safetensors.OpenFS(embedded.FS())
	if err != nil {
		t.Fatal(err)
	}
	rows, ok := w.Tensor("model.embed_tokens.weight")
	if !ok {
		t.Fatal("the embedded model has no table")
	}
	values, err := rows.Floats()
	if err != nil {
		t.Fatal(err)
	}
	return table{rows.Shape[1], values}
}

// item is the data item of the vectors of tokens.
func (e table) item(tokens []int32) fields { return fields{"prompt_embeds": e.file(tokens)} }

// file is the base64 form of the safetensors file of those vectors.
func (e table) file(tokens []int32) string {
	header := fmt.Sprintf(`{"prompt":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,%d]}}`,
		len(tokens), e.width, 4*len(tokens)*e.width)
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for _, token := range tokens {
		for _, x := range e.values[int(token)*e.width:][:e.width] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	return base64.StdEncoding.EncodeToString(data)
}

// TestVectorsThroughTheRouter: prompts whose parts come as the vectors of the model's own table
// give the golden tokens, and the log-probabilities of the prompt in tokens, wherever they are
// computed.
func TestVectorsThroughTheRouter(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	rows := embeddedTable(t)
	url := c.router.api + "/v1/completions"
	for _, g := range embeddedGolden().cases(t) {
		ids := g.PromptIDs
		body := greedy.with(fields{"return_token_ids": true, "logprobs": 2})
		want := post(t, url, body.with(fields{"prompt": ids})).completion(t)
		ask := func(what string, more fields) *openai.CompletionResponse {
			t.Helper()
			got := post(t, url, body.with(more)).completion(t)
			if len(got.Choices) != 1 || !slices.Equal(got.Choices[0].TokenIDs, g.GreedyIDs) {
				t.Errorf("%q, %s: %+v, want %v", g.Prompt, what, got.Choices, g.GreedyIDs)
				return &got
			}
			if !reflect.DeepEqual(got.Choices[0].Logprobs, want.Choices[0].Logprobs) {
				t.Errorf("%q, %s: other log-probabilities than for tokens", g.Prompt, what)
			}
			if got.Usage.Usage.PromptTokens != len(ids) {
				t.Errorf("%q, %s: usage %+v", g.Prompt, what, got.Usage.Usage)
			}
			return &got
		}
		ask("all vectors", fields{"prompt_embeds": rows.file(ids)})
		if len(ids) < 4 {
			continue
		}
		half := len(ids) / 2
		mixed := []any{ids[:1], rows.item(ids[1:half]), rows.item(ids[half : half+1]), ids[half+1:]}
		ask("mixed", fields{"prompt": mixed})
		again := ask("again", fields{"prompt": mixed})
		if cached := again.Usage.Usage.PromptTokensDetails.CachedTokens; cached != len(ids)-2 {
			t.Errorf("%.40q: %d tokens of it were cached, want %d", g.Prompt, cached, len(ids)-2)
		}
		ask("at the end", fields{"prompt": []any{ids[:half], rows.item(ids[half:])}})
	}
	if got := c.router.metric("engine_router_decisions_total", `decision="remote"`); got < 8 {
		t.Errorf("%v requests were prefilled by the prefill instance", got)
	}
	c.rest(t)
	c.stop()
}

// vectors are scenarios 44 to 46 and 48 on the wire, and what windows become beside items.
func vectors(t *testing.T, l *lab) {
	rows := embeddedTable(t)
	c := l.call(t, 120)
	ids := c.body["prompt"].([]int32)
	want := c.alone()
	c.body["prompt"] = []any{ids[:10], rows.item(ids[10:80]), rows.item(ids[80:100]), ids[100:]}
	c.handOver(119)
	got := c.start(119).completion(t)
	if !slices.Equal(got.Choices[0].TokenIDs, want) {
		t.Errorf("tokens %v, as tokens it gives %v", got.Choices[0].TokenIDs, want)
	}

	// A window that would end inside an item ends before it.
	c.body["user"] = "inside"
	c.body["prompt"] = []any{ids[:10], rows.item(ids[10:80]), rows.item(ids[80:])}
	reserved := c.prepare(-1)
	if r := c.send(reserved.KVAppendMetadata, reserved.PrefixMatchedLength, -1); r.status !=
		http.StatusOK && reserved.PrefixMatchedLength < 80 {
		t.Errorf("%d %s", r.status, r.body)
	}
	got = c.start(119).completion(t)
	if !slices.Equal(got.Choices[0].TokenIDs, want) {
		t.Errorf("tokens %v, as tokens it gives %v", got.Choices[0].TokenIDs, want)
	}

	// Another tensor is another prompt, and a wrong one is refused.
	c.body["user"] = "other"
	c.prepare(-1)
	ids[15] ^= 1
	c.body["prompt"] = []any{ids[:10], rows.item(ids[10:80]), rows.item(ids[80:])}
	c.refuses(c.start(80), 400, "invalid_value", "differs")
	c.release()
	c.body["prompt"] = []any{fields{"prompt_embeds": "AAAA"}}
	c.refuses(c.tryPrepare(-1), 400, "invalid_value", "prompt[0].prompt_embeds", "safetensors")
	c.body["prompt"] = []any{}
	c.refuses(c.tryPrepare(-1), 400, "invalid_value", "prompt", "empty")
}
