package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/kvrelay/engine/host/bench"
)

// benchLoad measures a server.
type benchLoad struct {
	url, key, name string
	plan           bench.Plan
	trace, slo     string
	speed          float64
	warmup         int
	targets        bench.Targets
}

// defaultIn is the length of prompts where the model's context is long enough.
const defaultIn = 512

// serverRest is how long a server may take to be at rest after the load.
const serverRest = 10 * time.Second

// check completes the plan.
func (o *benchLoad) check() error {
	p := &o.plan
	if p.Rate == 0 && p.Streams == 0 {
		p.Streams = 1
	}
	if p.Duration == 0 && p.Requests == 0 && o.trace == "" {
		p.Requests = 100
	}
	if at, err := url.Parse(o.url); err != nil || at.Host == "" ||
		at.Scheme != "http" && at.Scheme != "https" {
		return usageError("--url %q: write http://HOST:PORT or https://HOST", o.url)
	}
	switch {
	case p.Rate < 0 || p.Streams < 0 || p.Duration < 0 || p.Requests < 0 || o.warmup < 0:
		return usageError("--rate, --streams, --duration, --requests and --warmup are not negative")
	case p.Rate > 0 && p.Streams > 0:
		return usageError("--rate and --streams exclude each other")
	case p.In < 0 || p.Out < 1:
		return usageError("--in is not negative, --out at least 1")
	case p.Share < 0 || p.Share > 1 || p.Cancel < 0 || p.Cancel > 1:
		return usageError("--prefix-share and --cancel are between 0 and 1")
	}
	for part := range strings.SplitSeq(o.slo, ",") {
		if o.slo == "" {
			break
		}
		key, value, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(value)
		to := map[string]*time.Duration{"ttft": &o.targets.TTFT, "tpot": &o.targets.TPOT,
			"e2e": &o.targets.E2E}[strings.TrimSpace(key)]
		if err != nil || to == nil || d <= 0 {
			return usageError("--slo: %q is not ttft=2s, tpot=80ms or e2e=30s", part)
		}
		*to = d
	}
	if o.trace == "" {
		return nil
	}
	file, err := os.Open(o.trace)
	if err != nil {
		return err
	}
	defer file.Close()
	p.Trace, err = bench.ReadTrace(file, o.speed, 0)
	return err
}

// run loads the server.
func (o *benchLoad) run(ctx context.Context, s streams) (*bench.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.key == "" {
		o.key = os.Getenv("OPENAI_API_KEY")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1024
	client := &bench.Client{Base: o.url, Key: o.key, Model: o.name,
		HTTP: &http.Client{Transport: transport}}
	tokens, err := discover(ctx, client)
	if err != nil {
		return nil, err
	}
	if o.plan.In == 0 {
		o.plan.In = defaultIn
		if client.Context > 0 {
			o.plan.In = max(1, min(defaultIn, client.Context-o.plan.Out))
		}
	}
	d := &bench.Driver{Server: client, Tokens: tokens, Targets: o.targets}
	fmt.Fprintf(s.err, "%s · model %s · tokenizer: the server's /tokenize · warm-up %s · %s\n",
		o.url, client.Model, plural(o.warmup, "request"), planWords(o.plan))
	if o.warmup > 0 {
		warm, err := d.Run(ctx, bench.Warmup(o.warmup, o.plan.In, min(o.plan.Out, 16)))
		if err != nil {
			return nil, err
		}
		if warm.Failed > 0 {
			return nil, fmt.Errorf("a request before the measured ones failed: %s", warm.Errors[0])
		}
	}
	bar := o.progress(d, s.err)
	defer bar.end()
	before := processTime()
	load, err := d.Run(ctx, o.plan)
	bar.end()
	if err != nil {
		return nil, err
	}
	share := (processTime() - before).Seconds() / load.Elapsed.Seconds() /
		float64(runtime.NumCPU())
	if err := load.WriteTable(s.out); err != nil {
		return nil, err
	}
	fmt.Fprintf(s.err, "client overhead %.1f %% of the machine's processors", 100*share)
	if load.Late > 0 {
		fmt.Fprintf(s.err, " · %s began over 50 ms late", plural(load.Late, "request"))
	}
	fmt.Fprintln(s.err)
	for _, e := range load.Errors {
		fmt.Fprintln(s.err, "failed:", e)
	}
	if err := atRest(ctx, client, load, s); err != nil {
		return nil, err
	}
	r := &bench.Result{Kind: "load", Subject: o.url + " " + client.Model, Load: load,
		Rows: load.Rows(), Machine: thisMachine(runtime.NumCPU())}
	return r, nil
}

// discoverPatience is how long a server may take to say what it serves.
const discoverPatience = 30 * time.Second

// discover asks the server for its model, as far as it answers in time.
func discover(ctx context.Context, c *bench.Client) ([]int32, error) {
	asked, cancel := context.WithTimeout(ctx, discoverPatience)
	defer cancel()
	tokens, err := c.Discover(asked)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s takes connections and answers nothing for %v", c.Base,
			discoverPatience)
		return nil, unreachable(err)
	}
	var dialled *url.Error
	if errors.As(err, &dialled) {
		return nil, unreachable(err)
	}
	return tokens, err // What answers is reached, whatever it says.
}

// progress shows how many requests of the plan have ended, or how much of its time has passed.
func (o *benchLoad) progress(d *bench.Driver, out io.Writer) *benchBar {
	total := o.plan.Requests
	if o.plan.Trace != nil {
		total = len(o.plan.Trace)
	}
	begun, seconds := time.Now(), int(o.plan.Duration.Seconds())
	if total > 0 {
		bar := newBenchBar(out, "request", total)
		d.Done = bar.set
		return bar
	}
	bar := newBenchBar(out, "second", seconds)
	d.Done = func(int) { bar.set(int(time.Since(begun).Seconds())) }
	return bar
}

func planWords(p bench.Plan) string {
	switch {
	case p.Trace != nil:
		return fmt.Sprintf("a trace of %s", plural(len(p.Trace), "request"))
	case p.Rate > 0:
		return fmt.Sprintf("Poisson %.1f req/s", p.Rate)
	}
	return plural(p.Streams, "stream") + " at once"
}

// atRest wants the server to have let go of all requests, those that hung up included.
func atRest(ctx context.Context, c *bench.Client, l *bench.Load, s streams) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(serverRest); ; {
		busy, ok := c.Busy(ctx)
		switch {
		case !ok:
			fmt.Fprintln(s.err, "the server's /metrics does not say whether it is at rest")
			return nil
		case busy == 0 && l.HungUp > 0:
			fmt.Fprintf(s.err, "%s hung up, and the server let go of all of them\n",
				plural(l.HungUp, "request"))
			return nil
		case busy == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%v requests are still under way at the server %v after the load",
				busy, serverRest)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
