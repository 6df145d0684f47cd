//go:build cuda

package kernels_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a kernel with a mistake in how its threads wait for one another.
type mutant struct {
	name     string
	file     string // in src
	old, new string // old comes once in it
	kernel   string // the file that is compiled, without .cu
	test     string // must fail
}

// control is no mutant: it must pass.
const control = "nothing changed"

var mutants = []mutant{
	{control, "attend_fast.h", "", "", "attend_fast", "TestManySplits"},
	{"no barrier before a tile is read", "attend_fast.h",
		"      sync_block();\n      if (kKeep && first)", "      if (kKeep && first)",
		"attend_fast", "TestManySplits"},
	{"no barrier before a tile is overwritten", "attend_fast.h",
		"      take(t, buffer);\n      sync_block();\n", "      take(t, buffer);\n",
		"attend_fast", "TestManySplits"},
	{"no wait for the copies of a tile", "attend_fast.h",
		"        copy_wait<1>();\n", "", "attend_fast", "TestManySplits"},
	{"the last tile's copies may be pending", "attend_fast.h",
		"copy_wait<0>();", "copy_wait<1>();", "attend_fast", "TestManySplits"},
	{"copies are not committed", "attend_fast.h",
		"    copy_commit();\n", "", "attend_fast", "TestManySplits"},
	{"the next tile goes where this one is", "attend_fast.h",
		"fetch(next, buffer ^ 1);", "fetch(next, buffer);", "attend_fast", "TestManySplits"},
	{"the only tile is overwritten before all have read it", "attend_fast.h",
		"      sync_block();\n      if (next < to && stages == 1)",
		"      if (next < to && stages == 1)", "attend_fast",
		"TestSharedMemoryChangesNoBit/64"},
	{"stale slots are read", "attend_fast.h",
		"return position < kv_length &&\n", "return position < kv_length + 1 &&\n",
		"attend_fast", "TestManySplits"},
	{"splits are folded before their lanes' sums are one", "attend_fast.h",
		"      if (ends) end_split();\n", "      if (ends && !many) end_split();\n",
		"attend_fast", "TestManySplits"},
	{"a lane skips a shuffle", "numbers.h",
		"v += shuffle_xor(v, mask);", "if (thread_x() % WARP != 31) v += shuffle_xor(v, mask);",
		"rowwise", "TestNorm/bf16"},
	{"no barrier between warps' sums and their total", "numbers.h",
		"  sync_block();\n  float sum = 0.f;", "  float sum = 0.f;", "rowwise", "TestNorm/bf16"},
	{"no barrier before the warps' best are compared", "sample.cu",
		"best.index;\n  }\n  sync_block();\n", "best.index;\n  }\n", "sample", "TestSampling/bf16"},
	{"no barrier behind the cleared histogram", "sample.cu",
		"room->bins[b] = 0;\n  sync_block();\n", "room->bins[b] = 0;\n", "sample",
		"TestSampling/bf16"},
	{"no barrier before candidates are ranked", "sample.cu",
		"(&room->found, 1)] = key;\n  }\n  sync_block();\n", "(&room->found, 1)] = key;\n  }\n",
		"sample", "TestSampling/bf16"},
	{"no barrier before a warp's weights are overwritten", "attend_any.cu",
		"    s.output[d] = o;\n  }\n  sync_warp();\n", "    s.output[d] = o;\n  }\n",
		"attend_any", "TestAttentionOfAnyShape/bf16"},
}

// TestMutants: the tests catch every one of them with one of the seeds 0 to 3, in a process of its
// own for each. It runs where ENGINE_CUDA_DRIVER is the emulated driver, in the pass of seed 0.
func TestMutants(t *testing.T) {
	driver := os.Getenv("ENGINE_CUDA_DRIVER")
	base := filepath.Dir(driver)
	if _, err := os.Stat(filepath.Join(base, "objects")); driver == "" || err != nil {
		t.Skip("not on an emulated driver with its objects")
	}
	if seed := os.Getenv("ENGINE_EMULATOR_SEED"); seed != "" && seed != "0" {
		t.Skip("the pass of seed 0 runs the mutants, with all seeds")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			library := m.build(t, base)
			caught := ""
			for seed := range 4 {
				if caught = m.run(t, library, seed); caught != "" {
					t.Logf("seed %d: %s", seed, caught)
					break
				}
			}
			if m.name == control && caught != "" {
				t.Error("the kernel without a mistake fails")
			}
			if m.name != control && caught == "" {
				t.Errorf("%s passes with every seed", m.test)
			}
		})
	}
}

// build makes an emulated driver with the mutant in it.
func (m mutant) build(t *testing.T, base string) string {
	t.Helper()
	folder := t.TempDir()
	sources, out := filepath.Join(folder, "src"), filepath.Join(folder, "out")
	if err := os.CopyFS(sources, os.DirFS("src")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(sources, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if m.old != "" {
		if n := bytes.Count(text, []byte(m.old)); n != 1 {
			t.Fatalf("%s has %d times: %s", m.file, n, m.old)
		}
		text = bytes.Replace(text, []byte(m.old), []byte(m.new), 1)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("../emulator/build.sh", out, base,
		filepath.Join(sources, m.kernel+".cu"))
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return filepath.Join(out, "libcuda.so.1")
}

// run gives what the test says that must fail, "" if it passes.
func (m mutant) run(t *testing.T, library string, seed int) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + strings.ReplaceAll(m.test, "/", "$/^") + "$"
	test := exec.Command(self, "-test.run="+pattern, "-test.count=1", "-test.v")
	test.Env = append(os.Environ(), "ENGINE_CUDA_DRIVER="+library,
		fmt.Sprintf("ENGINE_EMULATOR_SEED=%d", seed))
	said, err := test.CombinedOutput()
	if err == nil {
		if !bytes.Contains(said, []byte("--- PASS: "+m.test)) {
			t.Fatalf("%s did not run:\n%s", m.test, said)
		}
		return ""
	}
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "emulated driver: error") ||
			strings.Contains(line, "_test.go:") && !strings.Contains(line, ", seed ") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("%s fails otherwise than by an assertion:\n%s", m.test, said)
	return ""
}
