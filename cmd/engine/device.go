package main

import (
	"errors"
	"fmt"

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
	driver, _, err := openDriver(cfg)
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

// openDriver opens what a CUDA device is made of. Where it cannot be had, key is the setting that
// asks for it.
func openDriver(cfg *config.Config) (d *driver.Driver, key string, err error) {
	if cfg.Model.DType == "f32" {
		return nil, "model.dtype", fmt.Errorf("backend.kind = %q keeps weights in bf16 or f16: "+
			"model.dtype = %q cannot be had there", cfg.Backend.Kind, cfg.Model.DType)
	}
	if d, err = cuda.OpenDriver(cfg.Backend.Device); err != nil {
		return nil, "backend.kind", fmt.Errorf("backend.kind = %q, device %d: %w",
			cfg.Backend.Kind, cfg.Backend.Device, err)
	}
	return d, "", nil
}

// checkDevice says, in the words of openDevice, what this binary or this machine lacks of what the
// file asks for. A file for GPUs is often checked where there is none: that is told, and no fault.
func checkDevice(cfg *config.Config) (line string, problems []config.Problem) {
	key, line, err := "backend.isa", "", error(nil)
	switch {
	case cfg.Node.Role == config.RoleRouter:
		return "none: a router computes nothing", nil
	case cfg.Backend.Kind == "cuda":
		line = fmt.Sprintf("cuda, number %d", cfg.Backend.Device)
		_, key, err = openDriver(cfg)
	default:
		var isa cpu.ISA
		isa, err = cpu.Check(deviceOptions(cfg))
		line = fmt.Sprintf("cpu %s, %s", isa, plural(threads(cfg), "thread"))
	}
	switch {
	case err == nil:
		return line, nil
	case cuda.Built() && errors.Is(err, driver.ErrNoDevice):
		return line + ", which this machine has not: " + err.Error(), nil
	}
	wrong := cfg.At(key)
	wrong.Code, wrong.Message = "E423", "this device cannot be opened here"
	wrong.Label = err.Error()
	return "", []config.Problem{wrong}
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
