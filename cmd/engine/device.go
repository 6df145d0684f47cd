package main

import (
	"fmt"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
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
	o := cuda.Options{Type: gpu.BF16}
	switch cfg.Model.DType {
	case "f16":
		o.Type = gpu.F16
	case "f32":
		return nil, fmt.Errorf("backend.kind = %q keeps weights in bf16 or f16: model.dtype = "+
			"%q cannot be had there", cfg.Backend.Kind, cfg.Model.DType)
	}
	driver, err := cuda.OpenDriver(cfg.Backend.Device)
	if err != nil {
		return nil, fmt.Errorf("backend.kind = %q, device %d: %w", cfg.Backend.Kind,
			cfg.Backend.Device, err)
	}
	device, err := cuda.Open(*driver, o)
	if err != nil {
		return nil, err
	}
	return device, nil
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
