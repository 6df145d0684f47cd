package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/bench"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
)

// benchModel measures a model in this process.
type benchModel struct {
	benchDevice
	path                               string
	prompts, generate, batches, depths []int
	repeat                             int
	peer                               string
}

// benchPageSize is the engine's default.
const benchPageSize = 16

// cases are the rows of the table. A length of 0 leaves its rows out, as in llama-bench.
func (o *benchModel) cases() []bench.Case {
	var list []bench.Case
	for _, depth := range o.depths {
		for _, n := range o.prompts {
			if n > 0 {
				list = append(list, bench.Case{Prompt: n, Depth: depth})
			}
		}
		for _, n := range o.generate {
			for _, batch := range o.batches {
				if n > 0 {
					list = append(list, bench.Case{Generate: n, Batch: batch, Depth: depth})
				}
			}
		}
	}
	return list
}

// check refuses what cannot be measured.
func (o *benchModel) check() error {
	if o.repeat < 1 {
		return usageError("--repeat %d: at least 1", o.repeat)
	}
	for _, list := range [][]int{o.prompts, o.generate, o.batches, o.depths} {
		for _, n := range list {
			if n < 0 {
				return usageError("%d: lengths and batches are not negative", n)
			}
		}
	}
	if len(o.cases()) == 0 {
		return usageError("nothing to measure: -p and -n are empty or 0")
	}
	if o.peer != "" && !model.IsGGUF(o.path) {
		return usageError("--peer needs --model with a GGUF file, which both read")
	}
	return nil
}

// run measures round by round, each case once a round, the peer beside it.
func (o *benchModel) run(ctx context.Context, s streams) (*bench.Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	device, cfg, err := o.open(o.isa)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	m, name, err := o.load(device, cfg, s.err)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	begun := time.Now()
	subject := &bench.Subject{Model: m, Vocabulary: m.Config().Vocabulary,
		PageSize: benchPageSize, MaxRows: m.MaxRows(),
		Clock: func() time.Duration { return time.Since(begun) }}
	cases := o.cases()
	if _, err := m.NewKV(subject.Pages(cases), benchPageSize); err != nil {
		return nil, err
	}
	r := &bench.Result{Kind: "model", Subject: name, Machine: thisMachine(device.Threads()),
		Settings: o.settings()}
	r.Machine.Device = device.Name()
	fmt.Fprintf(s.err, "%s · %s · %s · numerics %s · kv %s · load %.1f\n", name,
		r.Machine.Processor, device.Name(), m.Numerics(), o.kvDType, r.Machine.LoadAtRun)
	rounds := &benchRounds{benchModel: o, cases: cases, subject: subject, out: s.err,
		peer: newPeerBench(o, device.Threads()), ours: make([][]float64, len(cases)),
		peers: make([][]float64, len(cases))}
	for round := range o.repeat {
		if err := rounds.once(ctx, round); err != nil {
			return nil, err
		}
	}
	for i, c := range cases {
		r.Rows = append(r.Rows, c.Row(rounds.ours[i]))
	}
	return r, rounds.table(s.out, r)
}

// load loads the model with room for the longest case.
func (o *benchModel) load(
	device *cpu.Device, cfg *config.Config, out io.Writer,
) (*model.Model, string, error) {
	at, err := findModel(o.path, ".")
	if err != nil {
		return nil, "", err
	}
	show := newLoading(out, slog.New(slog.DiscardHandler))
	defer show.end()
	options := modelOptions(cfg)
	options.MaxRows = model.DefaultMaxRows // as peers cut prompts
	options.Admit, options.Progress = show.admit, show.progress
	var m *model.Model
	if at.path == "" {
		m, err = model.LoadFS(device, embedded.FS(), options)
	} else {
		m, err = model.Load(device, at.path, options)
	}
	if errors.Is(err, model.ErrKVType) {
		err = usageError("--kv-dtype %s: %w", o.kvDType, err)
	}
	if err != nil {
		return nil, "", err
	}
	for _, c := range o.cases() {
		if err := fits(c, m); err != nil {
			return nil, "", errors.Join(err, m.Close())
		}
	}
	return m, at.name, nil
}

// benchRounds is a measurement under way.
type benchRounds struct {
	*benchModel
	cases       []bench.Case
	subject     *bench.Subject
	out         io.Writer
	peer        *peerBench
	ours, peers [][]float64 // by case
}

// once measures every case once. A first, short run of each in the first round does not count: it
// brings weights and pages into memory.
func (r *benchRounds) once(ctx context.Context, round int) error {
	for i, c := range r.cases {
		if err := ctx.Err(); err != nil {
			return err
		}
		if round == 0 {
			short := bench.Case{Prompt: min(c.Prompt, 64), Generate: min(c.Generate, 2),
				Batch: c.Batch}
			if _, err := r.subject.Once(short, 1); err != nil {
				return err
			}
		}
		rate, err := r.subject.Once(c, uint64(round))
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		r.ours[i] = append(r.ours[i], rate)
		line := fmt.Sprintf("round %d/%d  %-16v %9.2f tok/s", round+1, r.repeat, c, rate)
		if r.peer.measures(c) {
			peer, err := r.peer.rate(ctx, c)
			if err != nil {
				return err
			}
			r.peers[i] = append(r.peers[i], peer)
			line += fmt.Sprintf("   peer %9.2f   ratio %.3f", peer, rate/peer)
		}
		fmt.Fprintln(r.out, line)
	}
	return nil
}

// table prints medians, and of a peer the ratios of the rounds.
func (r *benchRounds) table(out io.Writer, result *bench.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if r.peer.single == "" {
		fmt.Fprintln(w, "TEST\tTOK/S\tSPREAD")
	} else {
		fmt.Fprintln(w, "TEST\tTOK/S\tSPREAD\tPEER\tRATIO\tLEAST\tMOST")
	}
	for i, row := range result.Rows {
		fmt.Fprintf(w, "%s\t%.2f\t± %.2f", row.Name, row.Value, row.Spread)
		if r.peers[i] != nil {
			ratios := bench.Ratios(r.ours[i], r.peers[i])
			fmt.Fprintf(w, "\t%.2f\t%.3f\t%.3f\t%.3f", bench.Quantile(r.peers[i], 0.5),
				bench.Quantile(ratios, 0.5), bench.Quantile(ratios, 0), bench.Quantile(ratios, 1))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
