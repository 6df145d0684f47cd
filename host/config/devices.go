package config

import (
	"fmt"
	"slices"
)

// processors refuses what only one kind of device heeds where the file asks for the other kind:
// a setting that changes numbers, or speed, must not be accepted and do nothing.
func (c *checker) processors() {
	b, kind := c.config.Backend, c.config.Backend.Kind
	if c.bad["backend.kind"] {
		return
	}
	ignored := func(key, value, why string) {
		if !c.bad[key] {
			c.report(c.value(key), "E203",
				fmt.Sprintf("%s is %s, and backend.kind %q", key, value, kind), why)
		}
	}
	if kind == "cpu" {
		if b.Device != 0 {
			ignored("backend.device", fmt.Sprint(b.Device),
				`leave it out, or set kind = "cuda": it is the number of a GPU`)
		}
		return
	}
	unset := Default().Backend
	const leave = "leave it out: it is for the cpu, and a GPU "
	if b.ISA != unset.ISA {
		ignored("backend.isa", fmt.Sprintf("%q", b.ISA), leave+"has its own instructions")
	}
	if b.Activations != unset.Activations {
		ignored("backend.activations", fmt.Sprintf("%q", b.Activations),
			leave+"rounds activations to the type of the weights, which is model.dtype")
	}
	if b.Numerics != unset.Numerics {
		ignored("backend.numerics", fmt.Sprintf("%q", b.Numerics),
			leave+"sums in its library's order")
	}
	if c.config.Model.DType == "f32" {
		ignored("model.dtype", `"f32"`, "must be one of bf16, f16, auto: "+
			"a GPU keeps weights in 16 bits")
	}
	if c.config.KVCache.DType == "q8_0" {
		ignored("kv_cache.dtype", `"q8_0"`, "must be one of f16, bf16, f32: "+
			"a GPU keeps keys and values in no blocks")
	}
}

// tiles wants the order of sums that AMX has where AMX is asked for.
func (c *checker) tiles() {
	b := c.config.Backend
	if b.Kind == "cpu" && b.ISA == "amx" && b.Numerics != "tdp" && !c.bad["backend.numerics"] {
		c.report(c.value("backend.isa"), "E203", fmt.Sprintf(
			"backend.isa is \"amx\", and backend.numerics %q", b.Numerics),
			`set numerics = "tdp" beside it: the tiles of AMX sum in that order alone`)
	}
}

// roundings wants activations in BF16 with the order of sums that has a class for them.
func (c *checker) roundings() {
	b := c.config.Backend
	if b.Kind == "cpu" && b.Activations == "bf16" && b.Numerics == "tdp" &&
		!c.bad["backend.numerics"] {
		c.report(c.value("backend.activations"), "E203",
			"backend.activations is \"bf16\", and backend.numerics \"tdp\"",
			`set numerics = "fma" beside it: tdp splits activations, and never rounds them alone`)
	}
}

// cards wants a GPU where nothing but memory of GPUs may carry keys and values.
func (c *checker) cards() {
	t := c.config.Transfer.Transports
	if c.bad["transfer.transports"] || c.config.Backend.Kind == "cuda" || len(t) == 0 ||
		slices.ContainsFunc(t, func(name string) bool { return name != "ipc" }) {
		return
	}
	c.report(c.value("transfer.transports"), "E203", fmt.Sprintf(
		"transfer.transports is ipc alone, and backend.kind %q", c.config.Backend.Kind),
		`add what needs no GPU, such as transports = ["ipc", "shm", "unix", "tcp"]`)
}
