package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is where a request is.
type State uint8

// The states; Finished is only ever moved to.
const (
	Waiting State = iota
	Prefilling
	Prepared
	Receiving
	Decoding
	Finished
	states
)

func (s State) String() string {
	return [states]string{
		"waiting", "prefilling", "prepared", "receiving", "decoding", "finished",
	}[s]
}

// End is why a request ended.
type End string

// The ends.
const (
	EndStop      End = "stop"
	EndLength    End = "length"
	EndCancelled End = "cancelled"
	EndError     End = "error"
)

// requests are the series about requests; most of them are an engine's.
type requests struct {
	http        *prometheus.CounterVec
	connections prometheus.Gauge
	finished    *prometheus.CounterVec
	rejected    *prometheus.CounterVec

	inState          [Finished]prometheus.Gauge
	waiting, running prometheus.Gauge
	moves            [states][states]prometheus.Counter

	promptTokens, outputTokens          prometheus.Counter
	firstToken, betweenTokens, perToken prometheus.Histogram
	phases                              *prometheus.HistogramVec
	queue, prefill, decode, whole       prometheus.Histogram
}

func (r *requests) register(k, engine maker) {
	r.http = k.counters("engine_http_requests_total",
		"Requests answered; status 499 is a client that left.", "route", "status")
	r.connections = k.gauge("engine_http_connections", "Open connections of clients.")
	r.finished = engine.counters("engine_requests_finished_total", "Requests that ended.", "reason")
	for _, end := range []End{EndStop, EndLength, EndCancelled, EndError} {
		r.finished.WithLabelValues(string(end))
	}
	r.rejected = k.counters("engine_requests_rejected_total", "Requests refused, by error code.",
		"code")

	in := engine.gauges("engine_requests", "Requests by state.", "state")
	for s := range Finished {
		r.inState[s] = in.WithLabelValues(s.String())
	}
	r.waiting = engine.gauge("engine_requests_waiting", "Requests waiting, prepared or receiving.")
	r.running = engine.gauge("engine_requests_running", "Requests prefilling or decoding.")
	moves := engine.counters("engine_request_moves_total", "Moves between states.", "from", "to")
	for from := range Finished {
		for to := range states {
			if from != to {
				r.moves[from][to] = moves.WithLabelValues(from.String(), to.String())
			}
		}
	}

	r.promptTokens = engine.counter("engine_prompt_tokens_total", "Prompt tokens taken in.")
	r.outputTokens = engine.counter("engine_generation_tokens_total", "Tokens generated.")
	r.firstToken = k.histogram("engine_time_to_first_token_seconds",
		"From acceptance to the first token.", firstTokenBuckets())
	r.phases = k.histograms("engine_time_to_first_token_phase_seconds",
		"What the time to the first token was made of, where an application asked; the phases "+
			"add up to it.", firstTokenBuckets(), "phase")
	for _, phase := range []string{"queue", "prefill", "transfer", "decode_wait", "first_token"} {
		r.phases.WithLabelValues(phase)
	}
	r.betweenTokens = k.histogram("engine_inter_token_latency_seconds",
		"Between two tokens of a stream.", tokenBuckets())
	r.perToken = engine.histogram("engine_time_per_output_token_seconds",
		"Mean time a token after the first, one value a request.", tokenBuckets())
	r.queue = engine.histogram("engine_request_queue_seconds",
		"From acceptance to the first chunk.",
		requestBuckets())
	r.prefill = engine.histogram("engine_prefill_seconds",
		"From the first chunk to the prompt's end.",
		requestBuckets())
	r.decode = engine.histogram("engine_decode_seconds", "From the first token to the last.",
		requestBuckets())
	r.whole = engine.histogram("engine_e2e_request_seconds", "From acceptance to the last token.",
		requestBuckets())
}

// HTTPRequest counts an answer. route is the pattern, never the path that the client sent.
func (m *Metrics) HTTPRequest(route string, status int) {
	m.http.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// AddHTTPConnections counts a connection that opened (1) or closed (-1).
func (m *Metrics) AddHTTPConnections(n int) { m.connections.Add(float64(n)) }

// RequestFinished counts the end of a request.
func (m *Metrics) RequestFinished(end End) { m.finished.WithLabelValues(string(end)).Inc() }

// RequestRejected counts a refusal by its error code, one of the error table's.
func (m *Metrics) RequestRejected(code string) { m.rejected.WithLabelValues(code).Inc() }

// SetRequests sets how many requests are in each state; Finished counts nothing.
func (m *Metrics) SetRequests(in [Finished]int) {
	for s, n := range in {
		m.inState[s].Set(float64(n))
	}
	waiting := float64(in[Waiting] + in[Prepared] + in[Receiving])
	running := float64(in[Prefilling] + in[Decoding])
	m.requests.waiting.Set(waiting)
	m.requests.running.Set(running)
	m.outside.waiting.Set(waiting)
	m.outside.running.Set(running)
}

// RequestMoved counts a move between states. A move from Finished or to the same state is none.
func (m *Metrics) RequestMoved(from, to State) {
	if c := m.moves[from][to]; c != nil {
		c.Inc()
	}
}

// PromptTokens counts the tokens of an accepted prompt.
func (m *Metrics) PromptTokens(n int) { m.promptTokens.Add(float64(n)) }

// OutputTokens counts generated tokens.
func (m *Metrics) OutputTokens(n int) { m.outputTokens.Add(float64(n)) }

// FirstToken takes the time from acceptance to the first token.
func (m *Metrics) FirstToken(d time.Duration) { observe(m.firstToken, d) }

// FirstTokenPhase takes a part of the time to the first token.
func (m *Metrics) FirstTokenPhase(phase string, d time.Duration) {
	observe(m.phases.WithLabelValues(phase), d)
}

// BetweenTokens takes the time between two tokens of a stream.
func (m *Metrics) BetweenTokens(d time.Duration) { observe(m.betweenTokens, d) }

// Phases are the times of a request that ended. What it did not reach is negative and not counted.
type Phases struct {
	Queue, Prefill, Decode, Whole time.Duration
	// PerToken is Decode over the tokens after the first.
	PerToken time.Duration
}

// RequestPhases takes the times of a request that ended.
func (m *Metrics) RequestPhases(p Phases) {
	for _, x := range []struct {
		h prometheus.Histogram
		d time.Duration
	}{
		{m.queue, p.Queue},
		{m.prefill, p.Prefill},
		{m.decode, p.Decode},
		{m.whole, p.Whole},
		{m.perToken, p.PerToken},
	} {
		if x.d >= 0 {
			observe(x.h, x.d)
		}
	}
}
