package shipped

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// needs skips a test whose program is missing. ENGINE_REQUIRE_TOOLCHAINS makes that a failure: 1,
// or a list of languages that must be there.
func needs(t *testing.T, lang string, program ...string) {
	t.Helper()
	if exec.CommandContext(t.Context(), program[0], program[1:]...).Run() == nil {
		return
	}
	required := strings.Split(os.Getenv("ENGINE_REQUIRE_TOOLCHAINS"), ",")
	if slices.Contains(required, "1") || slices.Contains(required, lang) {
		t.Fatalf("%q does not run", program)
	}
	t.Skipf("%q does not run", program)
}

func runs(t *testing.T, command ...string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), command[0], command[1:]...)
	if printed, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, printed)
	}
}

const sdk = "../../abi/guest"

// TestUnitsInC compiles each unit.c natively and runs it.
func TestUnitsInC(t *testing.T) {
	needs(t, "c", "clang-14", "--version")
	for _, unit := range sources(t, "*/unit.c") {
		t.Run(filepath.Dir(unit), func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "unit")
			runs(t, "clang-14", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"+sdk+"/c",
				unit, "-o", program)
			runs(t, program)
		})
	}
}

// TestUnitsInRust compiles the policies that have a unit.rs natively and runs their tests.
func TestUnitsInRust(t *testing.T) {
	needs(t, "rust", "/usr/bin/rustc", "--version")
	dir := t.TempDir()
	pol := filepath.Join(dir, "libpol.rlib")
	runs(t, "/usr/bin/rustc", "--edition", "2021", "--crate-type", "rlib", "--crate-name", "pol",
		"-C", "opt-level=1", "-C", "debug-assertions=on", sdk+"/rust/src/lib.rs", "-o", pol)
	for _, unit := range sources(t, "*/unit.rs") {
		t.Run(filepath.Dir(unit), func(t *testing.T) {
			found := sources(t, filepath.Dir(unit)+"/*_*.rs")
			if len(found) == 0 {
				found = sources(t, filepath.Dir(unit)+"/"+filepath.Dir(unit)+".rs")
			}
			program := filepath.Join(t.TempDir(), "unit")
			runs(t, "/usr/bin/rustc", "--edition", "2021", "--test", "-C", "opt-level=1", "-C",
				"debug-assertions=on", "-C", "overflow-checks=on", "--extern", "pol="+pol, found[0],
				"-o", program)
			// A module has one thread, and its memory is the SDK's to hand out without a lock.
			runs(t, program, "--quiet", "--test-threads=1")
		})
	}
}

// TestUnitsInZig runs the tests of the policies in Zig.
func TestUnitsInZig(t *testing.T) {
	needs(t, "zig", "python3", "-m", "ziglang", "version")
	for _, source := range sources(t, "*/*.zig") {
		t.Run(filepath.Dir(source), func(t *testing.T) {
			runs(t, "python3", "-m", "ziglang", "test", "--dep", "pol", "-Mroot="+source,
				"-Mpol="+sdk+"/zig/src/pol.zig", "--cache-dir", t.TempDir())
		})
	}
}

func sources(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
