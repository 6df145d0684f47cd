package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
	"github.com/kvrelay/engine/host/config"
)

// openDevice opens what backend.kind names.
func openDevice(cfg *config.Config) (gpu.Device, error) {
	if cfg.Backend.Kind != "cuda" {
		device, err := cpu.Open(deviceOptions(cfg))
		if err != nil {
			return nil, fmt.Errorf("open the cpu device: %w", err)
		}
		return device, nil
	}
	driver, err := openDriver(cfg)
	if err != nil {
		return nil, err
	}
	o := cuda.Options{Type: gpu.BF16}
	if cfg.Model.DType == "f16" {
		o.Type = gpu.F16
	}
	device, err := cuda.Open(*driver, o)
	if err != nil {
		return nil, err
	}
	return device, nil
}

// openDriver opens what a CUDA device is made of.
func openDriver(cfg *config.Config) (*driver.Driver, error) {
	d, err := cuda.OpenDriver(cfg.Backend.Device)
	if err != nil {
		return nil, fmt.Errorf("backend.kind = %q, device %d: %w", cfg.Backend.Kind,
			cfg.Backend.Device, err)
	}
	return d, nil
}

// checkDevice says, in the words of openDevice, what this binary or this machine lacks of what the
// file asks for. A file for GPUs is often checked where there is none: that is a warning, and no
// fault.
func checkDevice(cfg *config.Config) (found finding, problems []config.Problem) {
	key, line, err := "backend.isa", "", error(nil)
	switch {
	case cfg.Node.Role == config.RoleRouter:
		return finding{text: "none: a router computes nothing"}, nil
	case cfg.Backend.Kind == "cuda":
		line = fmt.Sprintf("cuda, number %d", cfg.Backend.Device)
		key = "backend.kind"
		_, err = openDriver(cfg)
	default:
		var isa cpu.ISA
		isa, err = cpu.Check(deviceOptions(cfg))
		line = fmt.Sprintf("cpu %s, %s", isa, plural(threads(cfg), "thread"))
	}
	switch {
	case err == nil:
		return finding{text: line}, nil
	case cuda.Built() && errors.Is(err, driver.ErrNoDevice):
		return finding{text: line + ": this machine does not have it, and \"engine serve\" would " +
			"not start here: " + err.Error(), warns: true}, nil
	}
	wrong := cfg.At(key)
	wrong.Code, wrong.Message = "E423", "this device cannot be opened here"
	wrong.Label = err.Error()
	return finding{}, []config.Problem{wrong}
}

// finding is what the check has to say of a part that is no fault.
type finding struct {
	text  string
	warns bool // it is not as the file wants it, on this machine
}

func (f finding) print(w io.Writer, name string) {
	if f.warns {
		fmt.Fprintf(w, "! %-13s %s\n", name, f.text)
		return
	}
	tick(w, name, f.text)
}

// memoryOf tells what is free for weights and pages: on the device, where it has memory of its own,
// and whether somebody told.
func memoryOf(device gpu.Device) (free int64, known bool) {
	own, ok := device.(interface {
		Available() (free, total int64, err error)
	})
	if !ok {
		return freeMemory()
	}
	free, _, err := own.Available()
	return free, err == nil
}
