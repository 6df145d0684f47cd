package plugins

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// assembleEnv asks for the slow comparison of the guests with their sources.
const assembleEnv = "ENGINE_TEST_ASSEMBLE"

// assembled says whether a source in text gives the module beside it. The error says that there is
// no assembler.
func assembled(t *testing.T, source string) (bool, error) {
	if os.Getenv(assembleEnv) == "" {
		return false, fmt.Errorf("the guests are assembled anew only with %s=1", assembleEnv)
	}
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		return false, err
	}
	out := filepath.Join(t.TempDir(), "out.wasm")
	text, err := exec.CommandContext(t.Context(), tool, source, "-o", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", source, err, text)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(strings.TrimSuffix(source, ".wat") + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(got, want), nil
}
