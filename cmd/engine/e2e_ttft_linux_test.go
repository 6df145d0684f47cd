package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// ttft is an instance that computes prompts, and answers or hands them over to the other. One
// process does both, for where the system puts the weights of another may cost a tenth.
type ttft struct {
	t               *testing.T
	prefill, decode *node
	random          *rand.Rand
	requests        int
}

// TestRemoteFirstToken compares the time to the first token of a prompt that is computed on the
// instance that answers, and of one that another instance computes and hands over, in turns. It
// wants the machine for itself: ENGINE_TTFT is the folder of a model, such as the 97M one
//
//	tools/models/inflate.py DIR 768 16 8 64 2048 12 8192 BF16 --ctx 8192
//
// ENGINE_TTFT_ROUNDS and ENGINE_TTFT_TOKENS change how often (5) and for how many tokens.
func TestRemoteFirstToken(t *testing.T) {
	folder := os.Getenv("ENGINE_TTFT")
	if folder == "" {
		t.Skip("ENGINE_TTFT=DIR measures with the model there")
	}
	rounds, lengths := 5, []int{512, 1024, 2048, 4096}
	if n, err := strconv.Atoi(os.Getenv("ENGINE_TTFT_ROUNDS")); err == nil {
		rounds = n
	}
	if n, err := strconv.Atoi(os.Getenv("ENGINE_TTFT_TOKENS")); err == nil {
		lengths = []int{n}
	}
	dir := shortDir(t)
	text := func(role string) string {
		return fmt.Sprintf("[node]\nrole = %q\nname = %q\n[model]\npath = %q\n"+
			"[kv_cache]\nprefix_cache = false\n", role, role, folder)
	}
	m := &ttft{t: t, prefill: serveIn(t, dir, text("all")), decode: serveIn(t, dir, text("decode")),
		random: rand.New(rand.NewPCG(1, 2))}
	for _, tokens := range append([]int{64}, lengths...) { // The first is to warm up.
		m.measure(tokens, rounds)
	}
}

// measure compares prompts of so many tokens and wants what the project promises.
func (m *ttft) measure(tokens, rounds int) {
	var forward, locals, remotes, steps, trips, ratios, shares []float64
	for range rounds {
		prompt := m.prompt(tokens)
		local := m.timed(func() { m.complete(prompt, 1) })
		hidden, sent, ran := m.prefill.hidden(), m.sends(), m.prefill.ran()
		remote := m.timed(func() { m.handOver(prompt) })
		forward = append(forward, m.prefill.ran()-ran)
		if m.sends() > sent {
			shares = append(shares, m.prefill.hidden()-hidden)
		}
		step := (m.timed(func() { m.complete(prompt[:64], 33) }) -
			m.timed(func() { m.complete(prompt[:64], 1) })) / 32
		trip := m.timed(func() { m.refused(prompt) })
		locals, remotes = append(locals, local), append(remotes, remote)
		steps, trips = append(steps, step), append(trips, 3*trip)
		ratios = append(ratios, (remote-step-3*trip)/local)
	}
	m.t.Logf("%4d tokens: local %.1f ms, remote %.1f ms (%.1f of it the model), step %.2f ms, "+
		"three trips %.2f ms; (remote - step - trips) / local %.3f; hidden share %.2f", tokens,
		1000*middle(locals), 1000*middle(remotes), 1000*middle(forward), 1000*middle(steps),
		1000*middle(trips), middle(ratios), middle(shares))
	if tokens < 512 {
		return
	}
	if got := middle(ratios); got > 1.05 {
		m.t.Errorf("%d tokens: %.3f of a local first token, want 1.05 at most", tokens, got)
	}
	if got := middle(shares); tokens == 2048 && got < 0.5 {
		m.t.Errorf("%d tokens: %.2f of the transfer is hidden, want 0.5", tokens, got)
	}
}

func middle(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/2]
}

func (m *ttft) timed(do func()) float64 {
	began := time.Now()
	do()
	return time.Since(began).Seconds()
}

// prompt is of tokens that no prompt before had at its front.
func (m *ttft) prompt(tokens int) []int32 {
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = 3 + m.random.Int32N(500)
	}
	return prompt
}

func (m *ttft) body(prompt []int32, most int) fields {
	m.requests++
	return fields{"prompt": prompt, "max_tokens": most, "temperature": 0, "ignore_eos": true,
		"user": fmt.Sprintf("ttft-%d", m.requests)}
}

// complete has one instance do all of it.
func (m *ttft) complete(prompt []int32, most int) {
	if r := post(m.t, m.prefill.api+"/v1/completions", m.body(prompt, most)); r.status != 200 {
		m.t.Fatalf("local: %d %s", r.status, r.body)
	}
}

// handOver makes the three calls of a remote prefill.
func (m *ttft) handOver(prompt []int32) {
	c := &caller{t: m.t, prefill: m.prefill, decode: m.decode, body: m.body(prompt, 1)}
	end := len(prompt) - 1
	c.handOver(end)
	if r := c.start(end); r.status != http.StatusOK {
		m.t.Fatalf("start_generate: %d %s", r.status, r.body)
	}
}

// refused is a call of the same size that nothing is computed for.
func (m *ttft) refused(prompt []int32) {
	r := post(m.t, m.decode.internal+"/microserving/start_generate",
		m.body(prompt, 1).with(fields{"begin": 1}))
	if r.status != http.StatusNotFound {
		m.t.Fatalf("a start without a reservation: %d %s", r.status, r.body)
	}
}

// hidden is the sum of the shares of all transfers that a prefill instance has sent.
func (n *node) hidden() float64 { return n.metric("engine_transfer_hidden_ratio_sum") }

// ran is the time that an instance's model has run.
func (n *node) ran() float64 { return n.metric("engine_step_seconds_sum", `stage="run"`) }

func (m *ttft) sends() float64 { return m.prefill.metric("engine_transfer_hidden_ratio_count") }
