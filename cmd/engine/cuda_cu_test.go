//go:build cuda

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// driverVariable names the driver; without a value there is none.
const driverVariable = "ENGINE_CUDA_DRIVER"

// launchCUDA starts this binary, which has CUDA in it, with a driver.
func launchCUDA(t *testing.T, driver string, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchCommand(t, exec.Command("env",
		append([]string{driverVariable + "=" + driver, program}, args...)...))
}

// TestCUDAWithoutDriver: a binary with CUDA in it does on a machine without a driver all that needs
// none, and says what is missing for the rest.
func TestCUDAWithoutDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cuda.toml")
	if err := os.WriteFile(file, []byte("[backend]\nkind = \"cuda\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		driver string
		args   []string
		code   int
		says   string
	}{
		{"", []string{"version"}, 0, "cpu, cuda"},
		{"", []string{"config", "check", "-c", file}, 0, "is valid"},
		{"", []string{"policy", "check", "builtin:fcfs"}, 0, "descriptor"},
		{"", []string{"run", "--backend", "cpu", "--temperature", "0", "--max-tokens", "4",
			"In the beginning"}, 0, "4 tokens"},
		{"", []string{"run", "--backend", "cuda", "In the beginning"}, 1,
			`backend.kind = "cuda", device 0: no CUDA device: ` + driverVariable + " is empty"},
		{"", []string{"serve", "-c", file}, 1, "no CUDA device"},
		{"/nowhere/libcuda.so.1", []string{"serve", "-c", file}, 1, "/nowhere/libcuda.so.1"},
	} {
		t.Run(strings.Join(append(c.args[:1:1], c.driver), " "), func(t *testing.T) {
			p := launchCUDA(t, c.driver, c.args...)
			p.wait(c.code)
			if said := p.out.String() + p.err.String(); !strings.Contains(said, c.says) {
				t.Errorf("%q is not in what %v said:\n%s", c.says, c.args, said)
			}
		})
	}
}
