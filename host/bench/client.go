package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// Client is a server that speaks OpenAI's API; prompts go to it as token ids, so that both sides
// count the same.
type Client struct {
	Base  string // "http://127.0.0.1:8080", or with the "/v1" that API clients are given
	Key   string // "" sends none
	Model string // "" until Discover
	HTTP  *http.Client
	// Context is how many tokens prompt and answer may have together; 0 when the server does not
	// say. Discover sets it.
	Context int
}

// bounds of what is read from a server.
const (
	maxAnswer = 8 << 20
	// poolText is what the tokens of prompts come from: common words, so that they are tokens of
	// any vocabulary.
	poolText = "the and that with from this have were which their there been would other into " +
		"more some time could people than first water long little very after words called just " +
		"where most know great through line right mean before turn came cause much boy follow"
)

// Discover finds the model's name, when none was given, and the tokens that prompts are made of.
func (c *Client) Discover(ctx context.Context) ([]int32, error) {
	if c.Model == "" {
		var list struct {
			Data []struct{ ID string } `json:"data"`
		}
		if err := c.call(ctx, "GET", "/v1/models", nil, &list); err != nil {
			return nil, err
		}
		if len(list.Data) == 0 {
			return nil, errors.New("the server lists no model at /v1/models")
		}
		c.Model = list.Data[0].ID
	}
	var t openai.TokenizeResponse
	err := c.call(ctx, "POST", openai.PathTokenize, map[string]any{"model": c.Model,
		"prompt": poolText, "add_special_tokens": false}, &t)
	if err != nil {
		return nil, fmt.Errorf("the server's %s makes prompts of exact lengths: %w",
			openai.PathTokenize, err)
	}
	c.Context = t.MaxModelLen
	slices.Sort(t.Tokens)
	return slices.Compact(t.Tokens), nil
}

// call makes one call with JSON in and out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	r, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// at is the URL of a path. Not all paths are below /v1, which a Base may end in.
func (c *Client) at(path string) string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(c.Base, "/"), "/v1"), "/") + path
}

// send sends a request and returns an answer of status 200.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.at(path), body)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		q.Header.Set("Authorization", "Bearer "+c.Key)
	}
	r, err := c.HTTP.Do(q)
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 300)) // The status says enough without it.
		r.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, r.Status, bytes.TrimSpace(text))
	}
	return r, nil
}

// piece is what is read of one event of a stream.
type piece struct {
	Choices []struct {
		Text string `json:"text"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

// Do implements Server: a streamed completion that goes on to its last token.
func (c *Client) Do(ctx context.Context, a Ask) (answer Answer) {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	begun := time.Now()
	r, err := c.send(ctx, "POST", "/v1/completions", map[string]any{
		"model": c.Model, "prompt": a.Prompt, "max_tokens": a.Out, "ignore_eos": true,
		"temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return Answer{Err: err}
	}
	defer r.Body.Close()
	events, last := openai.NewEventReader(r.Body), begun
	for {
		data, err := events.Next()
		if err != nil {
			answer.Took = time.Since(begun)
			return answer.ended(err)
		}
		now := time.Now()
		var p piece
		if err := json.Unmarshal(data, &p); err != nil {
			return Answer{Err: fmt.Errorf("a piece of the stream: %w", err)}
		}
		if p.Usage != nil {
			answer.In, answer.Out = p.Usage.PromptTokens, p.Usage.CompletionTokens
		}
		if len(p.Choices) == 0 {
			continue
		}
		if answer.First == 0 {
			answer.First = now.Sub(begun)
		} else {
			answer.Gaps = append(answer.Gaps, now.Sub(last))
		}
		last = now
		if a.HangUp > 0 && len(answer.Gaps)+1 >= a.HangUp {
			answer.HungUp = true
			return answer
		}
	}
}

// ended judges a stream that is over.
func (a Answer) ended(err error) Answer {
	switch {
	case err != io.EOF:
		a.Err = fmt.Errorf("the stream broke off: %w", err)
	case a.First == 0:
		a.Err = errors.New("the stream ended without a piece")
	case a.Out == 0:
		a.Err = errors.New("the stream ended without its usage")
	}
	return a
}

// Series reads the server's /metrics: values by name, labels included. false when it has none.
func (c *Client) Series(ctx context.Context) (map[string]float64, bool) {
	r, err := c.send(ctx, "GET", "/metrics", nil)
	if err != nil {
		return nil, false
	}
	defer r.Body.Close()
	series := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(r.Body, maxAnswer))
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || lines.Text()[0] == '#' {
			continue
		}
		if x, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil {
			series[lines.Text()[:at]] = x
		}
	}
	return series, true
}

// Busy reads how many requests the server has running and waiting, from its /metrics; false when it
// does not say.
func (c *Client) Busy(ctx context.Context) (busy float64, found bool) {
	series, _ := c.Series(ctx)
	for name, x := range series {
		name, _, _ = strings.Cut(name, "{")
		if name == "engine_requests_running" || name == "engine_requests_waiting" {
			busy, found = busy+x, true
		}
	}
	return busy, found
}
