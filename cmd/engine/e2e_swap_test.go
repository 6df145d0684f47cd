package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/plugins"
)

// crowd is how many streams run while policies are swapped.
const crowd = 20

// swaps is how often the policy changes.
func swaps() int {
	if raced {
		return 24
	}
	return 200
}

// streamIDs reads the token ids of a streamed completion to its end. It may run beside the test.
func streamIDs(ctx context.Context, url string, body fields) ([]int32, error) {
	data, err := json.Marshal(body.with(fields{"stream": true, "return_token_ids": true}))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(string(data)))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, openai.DecodeError(response.StatusCode, text)
	}
	var ids []int32
	for events := openai.NewEventReader(response.Body); ; {
		data, err := events.Next()
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
		var chunk struct {
			openai.CompletionResponse
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(data, &chunk); err != nil || chunk.Error != nil {
			return ids, fmt.Errorf("event %s: %w", data, err)
		}
		for _, choice := range chunk.Choices {
			ids = append(ids, choice.TokenIDs...)
		}
	}
}

// stage is an instance with as many seats as there are streams, and one more for the plant.
type stage struct {
	t *testing.T
	*node
	admin *adminClient
	read  int // bytes of the log that were looked at
}

func (s *stage) url() string { return s.api + "/v1/completions" }

// song is the request of one stream of the crowd: it samples, so that any other order of chance
// would show.
func song(i int) fields {
	return fields{"prompt": []int32{5, int32(10 + i), 7}, "temperature": 1, "seed": i,
		"max_tokens": 480, "debug_config": fields{"ignore_eos": true}}
}

// sing repeats a stream until ctx ends, and wants the same tokens every time.
func (s *stage) sing(ctx context.Context, i int, want []int32) (times int, err error) {
	for ctx.Err() == nil {
		got, err := streamIDs(ctx, s.url(), song(i))
		if err != nil && ctx.Err() != nil {
			want = want[:min(len(got), len(want))] // It was cut off.
		} else if err != nil {
			return times, err
		}
		if !slices.Equal(got, want) {
			return times, fmt.Errorf("stream %d, time %d: %v, want %v", i, times, got, want)
		}
		times++
	}
	return times, nil
}

// swap makes a policy active by the operator's listener.
func (s *stage) swap(name string) plugins.Swap {
	s.t.Helper()
	var swap plugins.Swap
	ask := admin.Rollback{To: name}
	err := s.admin.call(s.t.Context(), "POST", "/policies/rollback", ask, &swap)
	if err != nil {
		s.t.Fatal(err)
	}
	if to, _, _ := strings.Cut(swap.To, "@"); to != name {
		s.t.Fatalf("%+v, want %s", swap, name)
	}
	return swap
}

// present waits until so many requests wait or run; false when that does not come about at once.
func (s *stage) present(requests int) bool {
	s.t.Helper()
	const glance = 200 * time.Millisecond
	return poll(glance, func() error {
		var who openai.Instance
		r, err := send(s.t.Context(), http.MethodGet, s.internal+openai.PathInstance, nil)
		if err == nil {
			err = json.Unmarshal([]byte(r.body), &who)
		}
		if err == nil && who.Waiting+who.Running != requests {
			err = fmt.Errorf("%d requests wait and %d run", who.Waiting, who.Running)
		}
		return err
	}) == nil
}

// plant queues a long prompt and, behind it, a short one, while every seat is taken; then it swaps
// the policy and frees a seat. It returns whose first token came first, or "" when one of them was
// not waiting at the swap, because a stream had ended and left its seat. The swap is done in any
// case.
func (s *stage) plant(round int, policy string) (first string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	blocker := open(s.t, s.url(), song(99))
	defer blocker.leave()
	blocker.next(&openai.CompletionResponse{})
	var planted sync.WaitGroup
	ids := []string{fmt.Sprint("long ", round), fmt.Sprint("short ", round)}
	failed, queued := make([]error, 2), true
	for i, tokens := range []int{400, 3} {
		prompt := make([]int32, tokens)
		for k := range prompt {
			prompt[k] = int32(20 + (round*7+k*k)%900)
		}
		planted.Go(func() {
			_, failed[i] = streamIDs(ctx, s.url(), fields{"prompt": prompt, "user": ids[i],
				"max_tokens": 1, "temperature": 0})
		})
		queued = queued && s.present(crowd+1+i+1)
	}
	swap := s.swap(policy)
	blocker.leave()
	planted.Wait()
	if err := errors.Join(failed...); err != nil {
		s.t.Error(err)
	}
	if first = s.firstOf(ids, swap.Step); !queued {
		return ""
	}
	return first
}

// firstOf finds in the log which of two requests got its token first; "" if either got it in a step
// that was decided before the swap.
func (s *stage) firstOf(ids []string, swapped uint64) (first string) {
	s.t.Helper()
	steps := map[string]uint64{}
	eventually(s.t, patience, func() error {
		text := s.err.String()[s.read:]
		text = text[:strings.LastIndexByte(text, '\n')+1]
		s.read += len(text)
		for line := range strings.Lines(text) {
			if !strings.Contains(line, ids[0]) && !strings.Contains(line, ids[1]) {
				continue
			}
			var token struct {
				ID   string `json:"id"`
				Step uint64 `json:"step"`
			}
			if err := json.Unmarshal([]byte(line), &token); err != nil {
				return err
			}
			if len(steps) == 0 {
				first = token.ID
			}
			steps[token.ID] = token.Step
		}
		if len(steps) < len(ids) {
			return fmt.Errorf("of %q the log has %v", ids, steps)
		}
		return nil
	})
	for _, step := range steps {
		if step <= swapped {
			return ""
		}
	}
	return first
}

// rehearse runs every stream by itself, or, where that takes too long, beside the others.
func (s *stage) rehearse(streams int) [][]int32 {
	s.t.Helper()
	songs, failed := make([][]int32, streams), make([]error, streams)
	var singing sync.WaitGroup
	for i := range songs {
		singing.Go(func() { songs[i], failed[i] = streamIDs(s.t.Context(), s.url(), song(i)) })
		if !raced {
			singing.Wait()
		}
	}
	singing.Wait()
	for i, ids := range songs {
		if failed[i] != nil || len(ids) != 480 {
			s.t.Fatalf("stream %d alone: %d tokens, %v", i, len(ids), failed[i])
		}
	}
	return songs
}

// TestSwapUnderStreams changes the policy 200 times under 20 streams. No request fails or changes
// its output, and each time a queue that was planted before the change is served in the order of
// the policy that came.
func TestSwapUnderStreams(t *testing.T) {
	n := serveNode(t, fmt.Sprintf("[scheduler]\nmax_num_seqs = %d\n"+
		"[telemetry]\nlog_level = \"debug\"\n", crowd+1))
	client, err := adminTarget{n.admin, patience}.dial()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, node: n, admin: client}
	wants := s.rehearse(crowd)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var singing sync.WaitGroup
	times, failed := make([]int, crowd), make([]error, crowd)
	for i, want := range wants {
		singing.Go(func() { times[i], failed[i] = s.sing(ctx, i, want) })
	}
	seen := map[string]int{}
	for round := range swaps() {
		policy, want := "builtin:sjf-aging", "short"
		if round%2 == 1 {
			policy, want = "builtin:fcfs", "long"
		}
		first, _, _ := strings.Cut(s.plant(round, policy), " ")
		if first != "" && first != want {
			t.Errorf("swap %d to %s: the %s prompt went first", round, policy, first)
		}
		seen[first]++
	}
	cancel()
	singing.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	t.Logf("first after a swap: %d long, %d short, %d times disturbed; streams begun: %v",
		seen["long"], seen["short"], seen[""], times)
	if seen["long"] < swaps()/8 || seen["short"] < swaps()/8 {
		t.Error("too few swaps were seen undisturbed")
	}
	rest(t, n)
	got := n.metric("engine_policy_swaps_total", `result="activated"`)
	if got != float64(swaps()+1) {
		t.Errorf("%v swaps are counted, want %d", got, swaps()+1)
	}
	s.untroubled()
	n.stop()
}
