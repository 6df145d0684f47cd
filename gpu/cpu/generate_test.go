package cpu_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated: the committed assembly is what the generator writes.
func TestGenerated(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	asm := filepath.Join(here, "asm")
	if _, err := os.Stat(asm); err != nil {
		t.Skip(err) // a test binary far from its sources
	}
	run := exec.Command(goTool, "run", filepath.Join(asm, "gen.go"), filepath.Join(asm, "rows.go"))
	run.Dir = t.TempDir()
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"kernels_amd64.s", "kernels_amd64.go"} {
		fresh, err := os.ReadFile(filepath.Join(run.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		committed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(fresh, committed) {
			t.Errorf("%s is not what asm/gen.go writes: run go generate in gpu/cpu", name)
		}
	}
}
