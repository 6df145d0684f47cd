package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/bench"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model"
)

// benchServing compares the model's bare loop with a whole engine on the same weights.
type benchServing struct {
	serving bool
	least   time.Duration // of a round's window; 0: leastWindow
	*benchModel
	*benchLoad
}

// generatorNice is how far the load generator steps back behind the engine.
const generatorNice = "19"

// check completes what was asked for.
func (o *benchServing) check() error {
	p, budget := &o.plan, config.Default().Scheduler.TokenBudget
	if p.Streams == 0 {
		p.Streams = 16
	}
	if p.In == 0 {
		p.In = 32
	}
	switch {
	case o.repeat < 1 || p.Streams < 1 || p.In < 1 || p.Out < 2:
		return usageError("--repeat, --streams and --in are at least 1, --out at least 2")
	case p.Streams > budget:
		return usageError("--streams %d: at most %d, the rows of a step", p.Streams, budget)
	}
	return nil
}

// file are the settings of the engine that is measured: the defaults but for its addresses, what
// the flags say, and a pool of twice what the streams take. A pool for the longest requests would
// be new memory in every round, as it is in no server that has run for a while.
func (o *benchServing) file(folder string) string {
	threads := `"auto"`
	if o.threads > 0 {
		threads = strconv.Itoa(o.threads)
	}
	path := o.path
	if absolute, err := filepath.Abs(path); err == nil && path != "" && fileExists(path) {
		path = absolute // The file's own folder is another one.
	}
	return fmt.Sprintf("[node]\nname = \"bench\"\nstate_dir = %q\n\n[listen]\n"+
		"api = \"127.0.0.1:0\"\nadmin = \"\"\ninternal = \"\"\n\n[model]\npath = %q\n"+
		"max_model_len = %d\n\n"+
		"[backend]\nthreads = %s\nisa = %q\nactivations = %q\nnumerics = %q\n\n"+
		"[kv_cache]\ndtype = %q\n\n[scheduler]\nmax_num_seqs = %d\n",
		filepath.Join(folder, "state"), path, o.plan.In+o.plan.Out+1, threads, o.isa, o.activations,
		o.numerics, o.kvDType, 2*o.plan.Streams)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run starts an engine in this process and measures round by round.
func (o *benchServing) run(ctx context.Context, s streams) (*bench.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if _, err := o.config(o.isa); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "engine-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "engine.toml")
	if err := os.WriteFile(file, []byte(o.file(folder)), 0o600); err != nil {
		return nil, err
	}
	cfg, _, err := loadConfig(file)
	if err != nil {
		return nil, err
	}
	i := &instance{file: file, cfg: cfg, level: new(slog.LevelVar), log: slog.New(
		slog.DiscardHandler), stall: cfg.Scheduler.Stall, shutdown: cfg.Shutdown}
	defer i.close()
	if err := i.open(ctx, streams{s.in, io.Discard, s.err}); err != nil {
		return nil, err
	}
	rounds, cycles, err := o.rounds(ctx, i, folder, s.err)
	if err != nil {
		return nil, err
	}
	r := &bench.Result{Kind: "serving", Subject: fmt.Sprintf("%s, %s of %d tokens behind %d",
		i.model.api.Names[0], plural(o.plan.Streams, "stream"), o.plan.Out, o.plan.In),
		Rows: bench.ServingRows(rounds), Machine: thisMachine(threads(i.cfg)),
		Settings: o.settings()}
	r.Machine.Device, r.Settings[classSetting] = i.model.model.DeviceName(),
		i.model.model.Numerics()
	r.Settings["requests-per-stream"] = strconv.Itoa(cycles)
	return r, bench.WriteServing(s.out, r.Rows)
}

// rounds measures the bare loop and the engine by turns.
func (o *benchServing) rounds(
	ctx context.Context, i *instance, folder string, out io.Writer,
) (list []bench.Serving, cycles int, err error) {
	bare, err := i.model.model.Share()
	if err != nil {
		return nil, 0, err
	}
	defer bare.Close()
	begun := time.Now()
	subject := &bench.Subject{Model: interruptible{ctx, bare}, Vocabulary: bare.Config().Vocabulary,
		PageSize: benchPageSize, MaxRows: bare.MaxRows(),
		Least: bench.LeastCase,
		Clock: func() time.Duration { return time.Since(begun) }}
	c := bench.Case{Generate: o.plan.Out, Batch: o.plan.Streams, Depth: o.plan.In}
	if err := fits(c, bare); err != nil {
		return nil, 0, err
	}
	if _, err := bare.NewKV(subject.Pages([]bench.Case{c}), benchPageSize); err != nil {
		return nil, 0, err
	}
	r := &servingRounds{benchServing: o, subject: subject, shape: c, folder: folder,
		client: &bench.Client{Base: "http://" + i.servers.api, HTTP: http.DefaultClient}}
	if o.beside != "" {
		cfg, err := o.config(o.isa)
		if err == nil {
			r.stream, err = openStream(bare, cfg)
		}
		if err != nil {
			return nil, 0, err
		}
		defer r.stream.close()
	}
	fmt.Fprintf(out, "%s · %s · %s · numerics %s · kv %s · load %.1f\n", i.model.api.Names[0],
		processorName(), bare.DeviceName(), bare.Numerics(), o.kvDType, thisMachine(0).LoadAtRun)
	list, err = r.run(ctx, out)
	return list, r.cycles, err
}

// fits wants the model to have room for a case.
func fits(c bench.Case, m *model.Model) error {
	if n := c.Depth + c.Prompt + c.Generate; n > m.Config().Context {
		return fmt.Errorf("%v takes %d positions, the model has %d", c, n, m.Config().Context)
	}
	return nil
}
