package trace

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the way to the collector.
const (
	maxQueued   = 4096
	maxBatch    = 512
	flushEvery  = time.Second
	postTimeout = 5 * time.Second
	closeWithin = 2 * time.Second
	warnEvery   = time.Minute
)

// TracerOptions say where spans go and whose they are.
type TracerOptions struct {
	// Endpoint is the collector's OTLP/HTTP address, such as http://127.0.0.1:4318; a path that is
	// not given is /v1/traces.
	Endpoint string
	// Resource describes this instance.
	Resource []Attr
	Version  string
	Log      *slog.Logger
}

// Tracer sends spans to a collector, as OTLP over HTTP in JSON.
type Tracer struct {
	options TracerOptions
	url     string
	client  *http.Client
	queue   chan Finished
	dropped atomic.Uint64
	closing chan struct{}
	done    sync.WaitGroup
	warned  time.Time
}

// NewTracer starts a tracer. Close must be called.
func NewTracer(o TracerOptions) (*Tracer, error) {
	at, err := url.Parse(o.Endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("the collector's address is %q; it must be http://HOST:PORT",
			o.Endpoint)
	}
	if at.Path == "" || at.Path == "/" {
		at.Path = "/v1/traces"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{options: o, url: at.String(), client: &http.Client{Timeout: postTimeout},
		queue: make(chan Finished, maxQueued), closing: make(chan struct{})}
	t.done.Go(t.run)
	return t, nil
}

// Dropped counts the spans that were lost because the queue was full or the collector did not take
// them.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	return t.dropped.Load()
}

// Close sends what is queued, for a moment, and ends the tracer. Spans that end later are dropped.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	close(t.closing)
	t.done.Wait()
}

func (t *Tracer) add(f Finished) {
	select {
	case t.queue <- f:
	default:
		t.dropped.Add(1)
	}
}

// run sends batches until Close.
func (t *Tracer) run() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	var batch []Finished
	for {
		select {
		case f := <-t.queue:
			if batch = append(batch, f); len(batch) < maxBatch {
				continue
			}
		case <-tick.C:
		case <-t.closing:
			t.drain(batch)
			return
		}
		t.post(context.Background(), batch)
		batch = batch[:0]
	}
}

// drain sends what is left.
func (t *Tracer) drain(batch []Finished) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for {
		select {
		case f := <-t.queue:
			batch = append(batch, f)
		default:
			t.post(ctx, batch)
			return
		}
	}
}

// post sends a batch. One that the collector does not take is lost: to keep it would take memory
// for as long as nobody is there.
func (t *Tracer) post(ctx context.Context, batch []Finished) {
	if len(batch) == 0 {
		return
	}
	err := t.send(ctx, batch)
	if err == nil {
		return
	}
	t.dropped.Add(uint64(len(batch)))
	if time.Since(t.warned) > warnEvery {
		t.warned = time.Now()
		t.options.Log.Warn("spans are lost: the collector does not take them", "spans", len(batch),
			"lost", t.dropped.Load(), "error", err)
	}
}

func (t *Tracer) send(ctx context.Context, batch []Finished) error {
	data, err := t.encode(batch)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	const most = 4096
	text, _ := io.ReadAll(io.LimitReader(response.Body, most)) // The status matters.
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s: %.200s", t.url, response.Status, text)
	}
	return nil
}

// The types below are the part of ExportTraceServiceRequest that is written here, in the JSON
// mapping of OTLP: ids in hex, 64-bit numbers as strings.
type (
	otlpValue struct {
		String *string  `json:"stringValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Float  *float64 `json:"doubleValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
	}
	otlpAttr struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpEvent struct {
		Time  string     `json:"timeUnixNano"`
		Name  string     `json:"name"`
		Attrs []otlpAttr `json:"attributes,omitempty"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	otlpSpan struct {
		Trace  string      `json:"traceId"`
		Span   string      `json:"spanId"`
		Parent string      `json:"parentSpanId,omitempty"`
		Name   string      `json:"name"`
		Kind   Kind        `json:"kind"`
		Begin  string      `json:"startTimeUnixNano"`
		End    string      `json:"endTimeUnixNano"`
		Attrs  []otlpAttr  `json:"attributes,omitempty"`
		Events []otlpEvent `json:"events,omitempty"`
		Status otlpStatus  `json:"status"`
	}
)

func (t *Tracer) encode(batch []Finished) ([]byte, error) {
	spans := make([]otlpSpan, len(batch))
	for i, f := range batch {
		spans[i] = otlpSpanOf(&f)
	}
	scope := map[string]any{"name": "github.com/kvrelay/engine", "version": t.options.Version}
	return json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": otlpAttrs(t.options.Resource)},
		"scopeSpans": []any{map[string]any{"scope": scope, "spans": spans}},
	}}})
}

func otlpSpanOf(f *Finished) otlpSpan {
	s := otlpSpan{Trace: hex.EncodeToString(f.Place.Trace[:]),
		Span: hex.EncodeToString(f.Place.Span[:]), Name: f.Name, Kind: f.Kind,
		Begin: nanos(f.Begin), End: nanos(f.End), Attrs: otlpAttrs(f.Attrs)}
	if f.Parent != [8]byte{} {
		s.Parent = hex.EncodeToString(f.Parent[:])
	}
	for _, m := range f.Moments {
		s.Events = append(s.Events, otlpEvent{nanos(m.At), m.Name, otlpAttrs(m.Attrs)})
	}
	if f.Failure != "" {
		const failed = 2
		s.Status = otlpStatus{failed, f.Failure}
	}
	return s
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func otlpAttrs(list []Attr) []otlpAttr {
	out := make([]otlpAttr, 0, len(list))
	for _, a := range list {
		v := otlpValue{}
		switch x := a.Value.(type) {
		case string:
			v.String = &x
		case bool:
			v.Bool = &x
		case int:
			text := strconv.Itoa(x)
			v.Int = &text
		case float64:
			v.Float = &x
		default:
			text := fmt.Sprint(x)
			v.String = &text
		}
		out = append(out, otlpAttr{a.Key, v})
	}
	return out
}
