package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/kvrelay/engine/host/bench"
	"github.com/kvrelay/engine/host/model"
)

// benchServing compares the model's bare loop with a whole engine on the same weights.
type benchServing struct {
	serving bool
	*benchModel
	*benchLoad
}

// generatorNice is how far the load generator steps back behind the engine.
const generatorNice = "19"

// check completes what was asked for.
func (o *benchServing) check() error {
	p := &o.plan
	if p.Streams == 0 {
		p.Streams = 16
	}
	if p.In == 0 {
		p.In = 32
	}
	switch {
	case o.repeat < 1 || p.Streams < 1 || p.In < 1 || p.Out < 2:
		return usageError("--repeat, --streams and --in are at least 1, --out at least 2")
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
	rounds, err := o.rounds(ctx, i, folder, s.err)
	if err != nil {
		return nil, err
	}
	r := &bench.Result{Kind: "serving", Subject: fmt.Sprintf("%s, %s of %d tokens behind %d",
		i.model.api.Names[0], plural(o.plan.Streams, "stream"), o.plan.Out, o.plan.In),
		Rows: bench.ServingRows(rounds), Machine: thisMachine(threads(i.cfg)),
		Settings: o.settings()}
	r.Machine.Device = i.model.device.Name()
	return r, bench.WriteServing(s.out, r.Rows)
}

// rounds measures the bare loop and the engine by turns.
func (o *benchServing) rounds(
	ctx context.Context, i *instance, folder string, out io.Writer,
) ([]bench.Serving, error) {
	bare, err := i.model.model.Share()
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	begun := time.Now()
	subject := &bench.Subject{Model: bare, Vocabulary: bare.Config().Vocabulary,
		PageSize: benchPageSize, MaxRows: bare.MaxRows(),
		Clock: func() time.Duration { return time.Since(begun) }}
	c := bench.Case{Generate: o.plan.Out, Batch: o.plan.Streams, Depth: o.plan.In}
	if err := fits(c, bare); err != nil {
		return nil, err
	}
	if _, err := bare.NewKV(subject.Pages([]bench.Case{c}), benchPageSize); err != nil {
		return nil, err
	}
	r := &servingRounds{benchServing: o, subject: subject, shape: c, folder: folder,
		client: &bench.Client{Base: "http://" + i.servers.api, HTTP: http.DefaultClient}}
	if o.beside != "" {
		cfg, err := o.config(o.isa)
		if err == nil {
			r.stream, err = openStream(bare, cfg)
		}
		if err != nil {
			return nil, err
		}
		defer r.stream.close()
	}
	fmt.Fprintf(out, "%s · %s · %s · load %.1f\n", i.model.api.Names[0], processorName(),
		i.model.device.Name(), thisMachine(0).LoadAtRun)
	return r.run(ctx, out)
}

// servingRounds is such a comparison under way.
type servingRounds struct {
	*benchServing
	subject *bench.Subject
	shape   bench.Case
	folder  string
	client  *bench.Client
	stream  *kvStream // nil: nothing is carried beside it
}

func (r *servingRounds) run(ctx context.Context, out io.Writer) ([]bench.Serving, error) {
	bar := newBenchBar(out, "round", r.repeat+1)
	bar.silent = true
	defer bar.end()
	var rounds []bench.Serving
	for round := range r.repeat + 1 { // The first warms up.
		s, err := r.once(ctx, uint64(round))
		if err != nil {
			return nil, err
		}
		bar.set(round + 1)
		if round == 0 {
			continue
		}
		rounds = append(rounds, s)
		beside := ""
		if r.stream != nil {
			beside = fmt.Sprintf("   beside %.1f MB/s of transfer %9.2f", s.Carried/1e6, s.Beside)
		}
		fmt.Fprintf(bar, "round %d/%d  bare %9.2f tok/s   served %9.2f   %5.1f %%%s   generator "+
			"%.1f %% of the processors\n", round, r.repeat, s.Bare, s.Served, 100*s.Ratio(), beside,
			100*s.Generator)
	}
	return rounds, nil
}

// once is a round.
func (r *servingRounds) once(ctx context.Context, seed uint64) (s bench.Serving, err error) {
	if s.Bare, err = r.subject.Once(r.shape, seed); err != nil {
		return s, err
	}
	before, _ := r.client.Series(ctx)
	if s.Served, s.Generator, err = r.drive(ctx, seed); err != nil {
		return s, err
	}
	after, _ := r.client.Series(ctx)
	s.Stages = bench.StageShares(before, after)
	if r.stream != nil {
		s.Carried, err = r.stream.beside(ctx, func() (err error) {
			s.Beside, _, err = r.drive(ctx, seed)
			return err
		})
	}
	return s, err
}

// drive loads the engine from a process of its own and waits for its end: tokens a second, and the
// part of the processors that the load took.
func (r *servingRounds) drive(
	ctx context.Context, seed uint64,
) (served, generator float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	o, file := r.benchServing, filepath.Join(r.folder, "load.json")
	args := []string{self, "bench", "--url", r.client.Base, "--warmup", "0", "--json", file,
		"--streams", strconv.Itoa(o.plan.Streams), "--requests", strconv.Itoa(o.plan.Streams),
		"--in", strconv.Itoa(o.plan.In), "--out", strconv.Itoa(o.plan.Out),
		"--seed", strconv.FormatUint(seed, 10)}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", generatorNice}, args...)
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	// One processor: what it looks for others to run its goroutines on is taken from the engine.
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	begun := time.Now()
	if text, err := command.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("the load generator: %w: %.500s", err, text)
	}
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	generator = used.Seconds() / time.Since(begun).Seconds() / float64(runtime.NumCPU())
	load, err := bench.Read(file)
	switch {
	case err != nil:
		return 0, 0, err
	case load.Load == nil || load.Load.Steady == 0:
		return 0, 0, errors.New("the streams were never all under way at once: " +
			"give them more --out")
	}
	return load.Load.Steady, generator, nil
}

// fits wants the model to have room for a case.
func fits(c bench.Case, m *model.Model) error {
	if n := c.Depth + c.Prompt + c.Generate; n > m.Config().Context {
		return fmt.Errorf("%v takes %d positions, the model has %d", c, n, m.Config().Context)
	}
	return nil
}
