package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	for _, batch := range o.batches {
		if batch < 1 || batch > model.DefaultMaxRows {
			return usageError("--batch %d: from 1 to %d sequences, each a row of a step", batch,
				model.DefaultMaxRows)
		}
	}
	for _, list := range [][]int{o.prompts, o.generate, o.depths} {
		for _, n := range list {
			if n < 0 {
				return usageError("%d: lengths are not negative", n)
			}
		}
	}
	if len(o.cases()) == 0 {
		return usageError("nothing to measure: -p and -n are empty or 0")
	}
	if o.peer != "" && o.beside != "" {
		return usageError("--peer and --beside-transfer are two comparisons; choose one")
	}
	if o.peer != "" && !model.IsGGUF(o.path) {
		return usageError("--peer needs --model with a GGUF file, which both read")
	}
	if o.peer != "" {
		return canRun("--peer", o.peer)
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
	m, name, err := o.load(ctx, device, cfg, s.err)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	begun := time.Now()
	subject := &bench.Subject{Model: interruptible{ctx, m}, Vocabulary: m.Config().Vocabulary,
		PageSize: benchPageSize, MaxRows: m.MaxRows(),
		Least: bench.LeastCase,
		Clock: func() time.Duration { return time.Since(begun) }}
	cases := o.cases()
	if _, err := m.NewKV(subject.Pages(cases), benchPageSize); err != nil {
		return nil, err
	}
	r := &bench.Result{Kind: "model", Subject: name, Machine: thisMachine(device.Threads()),
		Settings: o.settings()}
	r.Machine.Device, r.Settings[classSetting] = m.DeviceName(), m.Numerics()
	fmt.Fprintf(s.err, "%s · %s · %s · numerics %s · kv %s · load %.1f\n", name,
		r.Machine.Processor, r.Machine.Device, m.Numerics(), o.kvDType, r.Machine.LoadAtRun)
	rounds := &benchRounds{cases: cases, subject: subject, repeat: o.repeat,
		bar: newBenchBar(s.err, "run", o.repeat*len(cases))}
	rounds.bar.silent = true
	defer rounds.bar.end()
	switch {
	case o.peer != "":
		rounds.other = newPeerBench(o, device.Threads()).other()
	case o.beside != "":
		stream, err := openStream(m, cfg)
		if err != nil {
			return nil, err
		}
		defer stream.close()
		rounds.besideStream(stream)
		if rounds.cost, err = stream.cost(ctx); err != nil {
			return nil, err
		}
		fmt.Fprintf(s.err, "the transfer alone takes %.1f %% of the processors, both ends\n",
			100*rounds.cost)
	}
	if err := rounds.run(ctx); err != nil {
		return nil, err
	}
	rounds.bar.end()
	r.Rows = rounds.rows()
	return r, rounds.table(s.out)
}

// load loads the model with room for the longest case.
func (o *benchModel) load(
	ctx context.Context, device *cpu.Device, cfg *config.Config, out io.Writer,
) (*model.Model, string, error) {
	at, err := findModel(o.path, ".")
	if err != nil {
		return nil, "", err
	}
	show := newLoading(ctx, out, slog.New(slog.DiscardHandler))
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
