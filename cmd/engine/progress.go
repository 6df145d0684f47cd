package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model"
)

// loading shows how a model comes into memory: what it will take and, where that lasts, how far it
// is, as a bar on a terminal and as a log line each tenth elsewhere.
type loading struct {
	out  io.Writer
	log  *slog.Logger
	took func() time.Duration // since loading began
	stop func() error         // once the command is to end: why
	need model.Need           // what the model said it takes
	free int64                // bytes, before that; 0 where the system does not tell
	what string               // is done with the weights: "loading"

	device gpu.Device // whose memory it is; nil: the processor's

	tenths int64 // that a log line told
	bars   *mpb.Progress
	bar    *mpb.Bar
}

// loadPatience is how long loading says nothing: a small model is there at once.
const loadPatience = time.Second

func newLoading(ctx context.Context, out io.Writer, log *slog.Logger) *loading {
	begun := time.Now()
	return &loading{out: out, log: log, what: "loading", stop: ctx.Err,
		took: func() time.Duration { return time.Since(begun) }}
}

// admit refuses a model that the free memory does not hold. Where the system does not tell how much
// is free, it is let through.
func (l *loading) admit(need model.Need) error {
	l.need = need
	free, known := memoryOf(l.device)
	if known {
		l.free = free
	}
	l.log.Info("loading the model", "weights", size(int(need.Weights)),
		"activations", size(int(need.Scratch)), "kv_per_token", size(int(need.Token)),
		"free", size(int(free)))
	if whole := need.Weights + need.Scratch; known && whole > free {
		return fmt.Errorf("the model needs %s of memory (%s of weights, %s for the activations "+
			"of a step), but %s are free; a shorter model.dtype or a smaller "+
			"scheduler.token_budget need less", size(int(whole)), size(int(need.Weights)),
			size(int(need.Scratch)), size(int(free)))
	}
	return nil
}

// memory compares what was predicted with what became of it, for people.
func (l *loading) memory() string {
	text := size(int(l.need.Weights+l.need.Scratch)) + " needed"
	if l.free > 0 {
		text += fmt.Sprintf(" of %s free", size(int(l.free)))
	}
	if now, most, known := residentIn("/"); known {
		text += fmt.Sprintf(" · %s in use, %s at most so far", size(int(now)), size(int(most)))
	}
	return text
}

// progress hears how many bytes of the weights are in memory. Its error is that the command is to
// end.
func (l *loading) progress(done, total int64) error {
	if l.took() >= loadPatience && total > 0 {
		l.show(done, total)
	}
	return l.stop()
}

// show draws the bar, or tells the tenth.
func (l *loading) show(done, total int64) {
	if !isTerminal(l.out) {
		if tenths := 10 * done / total; tenths > l.tenths {
			l.tenths = tenths
			l.log.Info(l.what+" weights", "percent", 10*tenths, "of", size(int(total)))
		}
		return
	}
	if l.bar == nil {
		l.bars = mpb.New(mpb.WithOutput(l.out), mpb.WithWidth(64))
		l.bar = l.bars.AddBar(total, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(l.what+" weights ")),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")))
	}
	l.bar.SetCurrent(done)
}

// end takes the bar away.
func (l *loading) end() {
	if l.bar == nil {
		return
	}
	l.bar.Abort(true) // Nothing where the bar is complete.
	l.bars.Wait()
}
