package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/bench"
)

// benchKernels measures the kernels of the device.
type benchKernels struct {
	kernels bool
	dtypes  []string
	rows    []int
	far     int // bytes that the caches do not hold; 0: as the machine is
	kvGiven bool
}

// types are those asked for; of no names, all.
func (o *benchKernels) types() ([]gpu.DType, error) {
	var list []gpu.DType
	for dtype := range gpu.DTypes {
		if len(o.dtypes) == 0 {
			list = append(list, dtype)
		}
	}
	for _, name := range o.dtypes {
		found := false
		for dtype := range gpu.DTypes {
			if strings.EqualFold(name, dtype.String()) {
				list, found = append(list, dtype), true
			}
		}
		if !found {
			return nil, usageError("--dtype %s: no such type of weights; there are %v", name,
				allTypes())
		}
	}
	return list, nil
}

func allTypes() (names []string) {
	for dtype := range gpu.DTypes {
		names = append(names, dtype.String())
	}
	return names
}

// maxKernelRows bounds --rows: what the activations of a batch take grows with them.
const maxKernelRows = 4096

// check refuses what cannot be measured.
func (o *benchKernels) check(m *benchModel) error {
	if m.repeat < 1 || len(o.rows) == 0 {
		return usageError("--repeat and the number of --rows are at least 1")
	}
	for _, rows := range o.rows {
		if rows < 1 || rows > maxKernelRows {
			return usageError("--rows %d: from 1 to %d", rows, maxKernelRows)
		}
	}
	return nil
}

// run measures on one thread and on all, or on as many as were asked for, with each instruction
// set.
func (o *benchKernels) run(ctx context.Context, s streams, m *benchModel) (*bench.Result, error) {
	types, err := o.types()
	if err == nil {
		err = o.check(m)
	}
	if err != nil {
		return nil, err
	}
	threads := []int{1, cores()}
	if m.threads != 0 || threads[1] == 1 {
		threads = []int{max(m.threads, 1)}
	}
	r := &bench.Result{Kind: "kernels", Subject: "kernels",
		Machine: thisMachine(threads[len(threads)-1]), Settings: m.settings()}
	fmt.Fprintf(s.err, "%s · load %.1f\n", r.Machine.Processor, r.Machine.LoadAtRun)
	t := &kernelTable{out: s.out}
	for _, isa := range m.isas() {
		for _, n := range threads {
			some := m.benchDevice
			some.threads = n
			device, _, err := some.open(isa)
			if err != nil {
				return nil, err
			}
			k := &bench.Kernels{Device: device, Shape: bench.SmolShape, DTypes: types,
				KV: m.kvTypes(o.kvGiven, types), Rows: o.rows, Repeat: m.repeat,
				Far: cmp.Or(o.far, farBytes("/"))}
			bar := newBenchBar(s.err, "kernel", k.Count())
			bar.silent, t.bar, t.out, t.done = true, bar, bar.over(s.out), 0
			k.Done = t.kernel
			err = kernelsOf(ctx, k, device, t, r)
			bar.end()
			if err = errors.Join(err, device.Close()); err != nil {
				return nil, err
			}
		}
	}
	return r, t.err
}

// kernelsOf measures one device's limits and then its kernels.
func kernelsOf(
	ctx context.Context, k *bench.Kernels, d *cpu.Device, t *kernelTable, r *bench.Result,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begun := time.Now()
	k.Clock = func() time.Duration { return time.Since(begun) }
	k.Label = fmt.Sprintf("%s t%d", d.ISA(), d.Threads())
	limits := d.Limits(4 * k.Far)
	k.Limits = bench.Limits(limits)
	class := d.NumericsOf(k.DTypes)
	k.Product = func(t gpu.DType, rows int) float64 { return d.Product(limits, t, rows) }
	r.Machine.Device, r.Settings[classSetting] = d.NameIn(class), class
	r.Rows = append(r.Rows, k.Limits.Rows(k.Label)...)
	t.limits(r.Machine.Device, class, k.Limits)
	results, err := k.Run(ctx)
	for _, result := range results {
		r.Rows = append(r.Rows, result.Rows()...)
	}
	return err
}

// kernelTable prints results as they come.
type kernelTable struct {
	out  io.Writer
	err  error
	bar  *benchBar // of the device at hand
	done int       // of its kernels
}

func (t *kernelTable) print(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.out, format+"\n", args...)
	}
}

// limits heads the results of one device.
func (t *kernelTable) limits(device, class string, l bench.Limits) {
	short := ""
	if l.Pairs > 0 {
		short = fmt.Sprintf("bfloat16 pairs %.0f GFLOP/s, ", l.Pairs/1e9)
	}
	if l.Tiles > 0 {
		short += fmt.Sprintf("bfloat16 tiles %.0f GFLOP/s, ", l.Tiles/1e9)
	}
	small := ""
	if l.Small > 0 {
		small = fmt.Sprintf(", of weights below 32 %.0f", l.Small/1e9)
	}
	t.print("%s: at most %.0f GFLOP/s, %sint8 dot %.0f GOP/s%s, second-level cache %.0f GB/s, "+
		"memory %.1f GB/s · numerics %s", device, l.FMA/1e9, short, l.Dot/1e9, small, l.Cache/1e9,
		l.Memory/1e9, class)
	t.print("%11s %9s %5s %9s %5s %6s  %s", "µs", "GFLOP/s", "peak", "GB/s", "peak", "limit",
		"kernel")
}

// kernel is a line: rates, what part of each limit they are, and of the one that binds.
func (t *kernelTable) kernel(k bench.KernelResult) {
	share := func(rate, limit float64) string {
		if limit == 0 {
			return "–"
		}
		return fmt.Sprintf("%.0f%%", 100*rate/limit)
	}
	t.done++
	t.bar.set(t.done)
	operations, bytes := k.Operations/k.Took(), k.Bytes/k.Took()
	t.print("%11.2f %9.1f %5s %9.2f %5s %6s  %s", k.Took()*1e6, operations/1e9,
		share(operations, k.Compute), bytes/1e9, share(bytes, k.Bandwidth),
		share(k.OfLimit(), 1), k.Name)
}

// Far memory is twice the last cache, within bounds.
const (
	leastFar = 64 << 20
	mostFar  = 512 << 20
)

// farBytes is more than the caches of this machine hold together.
func farBytes(root string) int {
	most := 0
	caches, _ := filepath.Glob(filepath.Join(root, // The pattern is well formed.
		"sys/devices/system/cpu/cpu0/cache/index*/size"))
	for _, path := range caches {
		text, err := os.ReadFile(path)
		kib, err2 := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "K"))
		if err == nil && err2 == nil {
			most = max(most, kib<<10)
		}
	}
	return min(max(2*most, leastFar), mostFar)
}
