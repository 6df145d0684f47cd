package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	compiled = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spills   = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores`)
	used     = regexp.MustCompile(`Used (\d+) registers`)
)

// TestPtxas: the assembler of the vendor, where ENGINE_PTXAS names it, takes the PTX for each
// generation of GPUs, and no kernel spills registers. It logs what each kernel uses.
func TestPtxas(t *testing.T) {
	ptxas := os.Getenv("ENGINE_PTXAS")
	if ptxas == "" {
		t.Skip("set ENGINE_PTXAS to the path of ptxas")
	}
	file := filepath.Join(t.TempDir(), "kernels.ptx")
	if err := os.WriteFile(file, []byte(PTX()), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := map[string]int{}
	for _, k := range Table() {
		shared[k.Name] = k.Shared
	}
	for _, arch := range []string{"sm_80", "sm_89", "sm_90", "sm_100"} {
		out, err := exec.Command(ptxas, "-v", "-arch="+arch, file, "-o",
			filepath.Join(t.TempDir(), "cubin")).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", arch, err, out)
		}
		var table []string
		for part := range strings.SplitSeq(string(out), "\nptxas info    : Compiling") {
			part = "Compiling" + strings.TrimPrefix(part, "Compiling")
			name := compiled.FindStringSubmatch(part)
			if name == nil {
				continue
			}
			stack, registers := spills.FindStringSubmatch(part), used.FindStringSubmatch(part)
			if stack == nil || registers == nil {
				t.Fatalf("%s: cannot read what ptxas says of %s: %s", arch, name[1], part)
			}
			if stack[1] != "0" || stack[2] != "0" {
				t.Errorf("%s: %s has a stack of %s bytes and spills %s", arch, name[1], stack[1],
					stack[2])
			}
			table = append(table, fmt.Sprintf("%-24s %s registers, %d bytes shared at most",
				name[1], registers[1], shared[name[1]]))
		}
		if len(table) != len(shared) {
			t.Errorf("%s: ptxas speaks of %d kernels of %d", arch, len(table), len(shared))
		}
		t.Logf("%s\n%s", arch, strings.Join(table, "\n"))
	}
}
