package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/host/bench"
)

// thisMachine says where a result comes from.
func thisMachine(threads int) bench.Machine {
	m := bench.Machine{Processor: processorName(), Threads: threads}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		m.LoadAtRun, _ = strconv.ParseFloat(first, 64) // 0 where the system says nothing.
	}
	return m
}

// processorName is what the system calls it, with family and model, by which those of one name
// differ.
func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	facts := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		key, value, _ := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); facts[key] == "" {
			facts[key] = strings.TrimSpace(value)
		}
	}
	if facts["model name"] == "" {
		return "unknown processor"
	}
	return fmt.Sprintf("%s (family %s model %s)", facts["model name"], facts["cpu family"],
		facts["model"])
}
