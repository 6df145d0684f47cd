package shipped

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/plugins/policyfile"
)

// bimodal is a minute of nine short prompts to one long one, at 95 % of what the machine can do.
func bimodal() (machine, []ask) {
	const seed = 11
	chance := rand.New(rand.NewPCG(seed, 0))
	m := plain()
	m.fixed, m.token, m.pages, m.lasts = 500*time.Microsecond, 20*time.Microsecond, 20_000, 0
	var asks []ask
	for at := time.Duration(0); at < time.Minute; {
		n := 100 + chance.IntN(200)
		if chance.IntN(10) == 0 {
			n = 8000
		}
		asks = append(asks, ask{at: at, prompt: text(uint64(len(asks)), n), output: 1})
		at += time.Duration(chance.ExpFloat64() * float64(22*time.Millisecond))
	}
	return m, asks
}

// waits are the mean times to the first token: of all, of short prompts and of long ones.
type waits struct{ all, short, long time.Duration }

func (w waits) String() string {
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return "mean time to first token " + ms(w.all) + ", short prompts " + ms(w.short) +
		", long ones " + ms(w.long)
}

func measured(t *testing.T, name string, wasm []byte) waits {
	m, asks := bimodal()
	m.wasm = wasm
	var w waits
	short := 0
	clients := m.serve(t, name, asks, nil).clients
	for _, c := range clients {
		w.all += c.first()
		if len(c.prompt) < 1000 {
			w.short += c.first()
			short++
		}
	}
	w.long = (w.all - w.short) / time.Duration(len(clients)-short)
	w.all, w.short = w.all/time.Duration(len(clients)), w.short/time.Duration(short)
	t.Logf("%-10s %s", name, w)
	return w
}

// TestBimodal measures policies on a queue of short and long prompts. POLICY=FILE.wasm measures
// that module too, and fails when it does not beat fcfs.
func TestBimodal(t *testing.T) {
	fcfs := measured(t, "fcfs", nil)
	sjf := measured(t, "sjf-aging", nil)
	if sjf.all > fcfs.all*2/3 || sjf.short > fcfs.short/4 || sjf.long < fcfs.long {
		t.Error("shortest first does not lower the mean, at the price of the long ones")
	}
	path := os.Getenv("POLICY")
	if path == "" {
		return
	}
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if own := measured(t, filepath.Base(path), wasm); own.all >= fcfs.all {
		t.Error("it does not beat fcfs")
	}
}

// TestReadmeBeatsFCFS: the policy that README.md lets a newcomer write, in C, does what it is
// written for.
func TestReadmeBeatsFCFS(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(text), "```c\n")
	code, _, closed := strings.Cut(code, "```")
	if !found || !closed {
		t.Fatal("there is no C code")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fcfs.c"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := policyfile.Read("fcfs/policy.toml") // Its commands, on another source.
	if err != nil {
		t.Fatal(err)
	}
	if missing := file.Build.Missing(t.Context()); len(missing) > 0 {
		t.Skip(strings.Join(missing, "; "))
	}
	sdk, err := filepath.Abs("../../abi/guest")
	if err != nil {
		t.Fatal(err)
	}
	dirs := policyfile.Dirs{Source: dir, SDK: sdk, Tmp: dir, Out: filepath.Join(dir, "mine.wasm")}
	if err := file.Build.Run(t.Context(), dirs); err != nil {
		t.Fatal(err)
	}
	wasm, err := os.ReadFile(dirs.Out)
	if err != nil {
		t.Fatal(err)
	}
	if own, fcfs := measured(t, "mine", wasm), measured(t, "fcfs", nil); own.all >= fcfs.all*2/3 {
		t.Errorf("the README's policy does not beat fcfs: %v against %v", own.all, fcfs.all)
	}
}
