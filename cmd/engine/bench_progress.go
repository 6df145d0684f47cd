package main

import (
	"fmt"
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// benchBar shows how far a measurement is: as a bar below its lines on a terminal; elsewhere the
// lines alone, and where there are none one for each tenth.
type benchBar struct {
	out    io.Writer
	noun   string // what is counted: "run", "request"
	silent bool   // no line for each tenth: others are printed
	total  int
	done   int
	bars   *mpb.Progress // nil where there is no terminal
	bar    *mpb.Bar
}

// newBenchBar counts to total on out, the screen of messages.
func newBenchBar(out io.Writer, noun string, total int) *benchBar {
	b := &benchBar{out: out, noun: noun, total: total}
	if isTerminal(out) && total > 0 {
		b.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(40))
		b.bar = b.bars.AddBar(int64(total), mpb.BarRemoveOnComplete(),
			mpb.AppendDecorators(decor.CountersNoUnit("%d / %d "+noun+"s "),
				decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "")))
	}
	return b
}

// Write implements io.Writer: lines above the bar, each whole.
func (b *benchBar) Write(lines []byte) (int, error) {
	if b.bars != nil {
		return b.bars.Write(lines)
	}
	return b.out.Write(lines)
}

// over is a writer for lines of the screen out: above the bar where that is on the same terminal.
func (b *benchBar) over(out io.Writer) io.Writer {
	if b.bars != nil && isTerminal(out) {
		return b
	}
	return out
}

// set says that so many are done.
func (b *benchBar) set(done int) {
	tenth := func(n int) int { return 10 * n / max(b.total, 1) }
	told := tenth(b.done)
	b.done = max(b.done, min(done, b.total))
	if b.bar != nil {
		b.bar.SetCurrent(int64(b.done))
	} else if !b.silent && tenth(b.done) > told {
		fmt.Fprintf(b.out, "%d %% · %d of %s\n", 10*tenth(b.done), b.done,
			plural(b.total, b.noun))
	}
}

// end takes the bar away.
func (b *benchBar) end() {
	if b.bar != nil {
		b.bar.Abort(true) // Nothing where the bar is complete.
		b.bars.Wait()
		b.bar, b.bars = nil, nil
	}
}
