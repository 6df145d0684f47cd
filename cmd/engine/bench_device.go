package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/host/config"
)

// benchDevice is how a bench uses the processor, in the words of the configuration.
type benchDevice struct {
	threads                             int // 0: as the engine takes
	isa, activations, numerics, kvDType string
	beside                              string // rate of a transfer beside it; "": none
}

func (d *benchDevice) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&d.threads, "threads", "t", 0, "threads; 0: as many as the engine takes")
	f.StringVar(&d.isa, "isa", "auto",
		"auto, amx, avx512, avxvnni, avx2, plain; or several")
	f.StringVar(&d.activations, "activations", "int8",
		"what they are rounded to: int8, f32, bf16")
	f.StringVar(&d.numerics, "numerics", "fma",
		"sums of other weights than quantised: fma, tdp")
	f.StringVar(&d.kvDType, "kv-dtype", "f16", "keys and values: f16, f32, bf16, q8_0")
	f.StringVar(&d.beside, "beside-transfer", "",
		"`RATE` of keys and values over loopback beside it: 64MiB/s")
}

// config is the configuration that the flags stand for, with one of the instruction sets. What a
// file would be refused for is wrong usage, in the same words.
func (d *benchDevice) config(isa string) (*config.Config, error) {
	threads := ""
	if d.threads != 0 {
		threads = strconv.Itoa(d.threads)
	}
	flags := []struct{ flag, variable, value, more string }{
		{"threads", "ENGINE__BACKEND__THREADS", threads,
			", or 0: as many as the engine takes"},
		{"isa", "ENGINE__BACKEND__ISA", isa, ""},
		{"activations", "ENGINE__BACKEND__ACTIVATIONS", d.activations, ""},
		{"numerics", "ENGINE__BACKEND__NUMERICS", d.numerics, ""},
		{"kv-dtype", "ENGINE__KV_CACHE__DTYPE", d.kvDType, ""},
		{"beside-transfer", "ENGINE__TRANSFER__MAX_RATE", d.beside, ""},
	}
	var environ []string
	for _, f := range flags {
		if f.value != "" {
			environ = append(environ, f.variable+"="+f.value)
		}
	}
	cfg, problems := config.LoadUnder("", environ)
	if !config.Failed(problems) {
		return cfg, nil
	}
	p := problems[0]
	for _, f := range flags {
		if f.variable == p.Variable {
			return nil, usageError("--%s %s: %s; %s%s", f.flag, f.value, p.Message, p.Label, f.more)
		}
	}
	return nil, usageError("%s; %s", p.Message, p.Label)
}

// open opens the device, and gives the configuration that it follows.
func (d *benchDevice) open(isa string) (*cpu.Device, *config.Config, error) {
	cfg, err := d.config(isa)
	if err != nil {
		return nil, nil, err
	}
	device, err := cpu.Open(deviceOptions(cfg))
	if err != nil {
		return nil, nil, fmt.Errorf("--isa %s: %w", isa, err)
	}
	return device, cfg, nil
}

// classSetting names, in a result's settings, the numerics class that flags and weights led to.
const classSetting = "numerics-class"

// settings are what a result depends on beside the machine, by the names of the flags.
func (d *benchDevice) settings() map[string]string {
	all := map[string]string{"isa": d.isa, "activations": d.activations, "numerics": d.numerics,
		"kv-dtype": d.kvDType}
	if d.beside != "" {
		all["beside-transfer"] = d.beside
	}
	return all
}

// isas are the instruction sets asked for.
func (d *benchDevice) isas() []string { return strings.Split(d.isa, ",") }

// kvTypes are the types of keys and values to measure attention on: --kv-dtype where it was given,
// else those of the weights that pages may have, else the default.
func (d *benchDevice) kvTypes(given bool, weights []gpu.DType) (list []gpu.DType) {
	for _, dtype := range weights {
		if !given && (!dtype.Quantised() || dtype == gpu.Q8_0) {
			list = append(list, dtype)
		}
	}
	for dtype := range gpu.DTypes {
		if len(list) == 0 && dtype.String() == cmp.Or(d.kvDType, "f16") {
			return []gpu.DType{dtype}
		}
	}
	return list
}
