package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What the long run is asked for with. A run whose folder has what another one did of the same seed
// goes on where that one was.
const (
	mutantsEnv = "ENGINE_TEST_MUTANTS"       // how many
	partsEnv   = "ENGINE_TEST_MUTANTS_PARTS" // processes; one for each processor
	folderEnv  = "ENGINE_TEST_MUTANTS_DIR"   // what was done, and the mutants kept
	partEnv    = "ENGINE_TEST_MUTANTS_PART"  // makes this process one of them
)

// The bounds of a mutant: processor time, which does not depend on what else runs, and how much the
// process may have grown by, at its largest.
const (
	mutantWork  = 5 * time.Second
	largeWork   = compileTime
	mutantRoom  = 512 << 20 // bytes
	mutantStall = 20 * time.Minute
)

// heapRoom is how much garbage is left to lie; collecting it after each small module would be half
// of the work.
const heapRoom = 192 << 20

// part is one process of the long run: of the mutants of a seed it makes every Parts-th.
type part struct {
	t      *testing.T
	dir    string
	number int
	tally  *tally
	before int // bytes of memory
	at     *os.File
	self   []string
}

func partFile(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("part-%d.json", number))
}

func atFile(dir string, number int) string {
	return filepath.Join(dir, fmt.Sprintf("part-%d.at", number))
}

// readTally is what a part has done; nothing, if there is no file.
func readTally(dir string, number int, seed uint64, parts int) (*tally, error) {
	c := newTally(seed, parts)
	raw, err := os.ReadFile(partFile(dir, number))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, c)
	}
	if err == nil && (c.Seed != seed || c.Parts != parts) {
		err = fmt.Errorf("%s is of seed %d in %d parts: name another folder, or that seed",
			partFile(dir, number), c.Seed, c.Parts)
	}
	return c, err
}

// save writes what was done; a process that is killed meanwhile leaves the file that was.
func (p *part) save() {
	raw, err := json.Marshal(p.tally)
	file := partFile(p.dir, p.number)
	if err == nil {
		err = os.WriteFile(file+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// work is the processor time of this process and of those it waited for.
func work() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum
}

// peak is the most memory that this process ever had, in bytes.
func peak() int {
	raw, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fields[0])
	return kib << 10
}

// one lets the i-th mutant live.
func (p *part) one(k *kitchen, i int) {
	if _, err := p.at.WriteAt(fmt.Appendf(nil, "%-20d\n", i), 0); err != nil {
		p.t.Fatal(err)
	}
	m := k.make(i)
	var c compiler
	if m.apart {
		dir, err := os.MkdirTemp(p.dir, "cache-")
		if err != nil {
			p.t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		c = newCompiler(p.self, dir, slog.New(slog.DiscardHandler))
	}
	begin := work()
	l := live(m.wasm, m.fuel, c)
	took := work() - begin
	if m.apart && m.lang != "go" { // Of Go's the second time would cost too much.
		if here := live(m.wasm, m.fuel, compiler{}); here != l {
			p.t.Errorf("mutant %d of seed %d, compiled here: %+v, and in another process: %+v", i,
				k.seed, here, l)
		}
	}
	limit := mutantWork
	if m.lang == "go" {
		limit = largeWork
	}
	if took > limit {
		p.t.Errorf("mutant %d of seed %d took %v of processor time", i, k.seed, took)
	}
	if p.tally.Kinds[l.kind] == 0 || m.lang == "wat" && p.tally.Kinds[l.kind] < 100 {
		p.keep(m, l)
	}
	p.tally.count(i, m, l, took)
}

// keep saves the smallest of the first mutants of a kind.
func (p *part) keep(m mutant, l life) {
	file := filepath.Join(p.dir, "kept", keptName(l.kind))
	had, err := os.Stat(file)
	if l.kind == "" || len(m.wasm) > keptBytes || err == nil && had.Size() <= int64(len(m.wasm)) {
		return
	}
	own := fmt.Sprintf("%s.%d", file, p.number) // Another part may write the same.
	err = os.WriteFile(own, m.wasm, 0o600)
	if err == nil {
		err = os.Rename(own, file)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestMutantPart is one process of TestMutantsApart.
func TestMutantPart(t *testing.T) {
	if os.Getenv(partEnv) == "" {
		t.Skip("one process of TestMutantsApart")
	}
	var number, parts, n int
	var seed uint64
	_, err := fmt.Sscanf(os.Getenv(partEnv), "%d/%d of %d, seed %d", &number, &parts, &n, &seed)
	if err != nil {
		t.Fatal(err)
	}
	p := part{t: t, dir: os.Getenv(folderEnv), number: number, before: resident(), self: self(t)}
	if p.tally, err = readTally(p.dir, number, seed, parts); err != nil {
		t.Fatal(err)
	}
	if p.at, err = os.Create(atFile(p.dir, number)); err != nil {
		t.Fatal(err)
	}
	defer p.at.Close()
	debug.SetGCPercent(1000)
	debug.SetMemoryLimit(int64(resident()) + heapRoom)
	k := longKitchen(t, seed, p.dir)
	saved := time.Now()
	for i := number + p.tally.Done*parts; i < n && !t.Failed(); i += parts {
		p.one(&k, i)
		if time.Since(saved) > 5*time.Second || i+parts >= n {
			saved = time.Now()
			p.tally.Grown = max(p.tally.Grown, peak()-p.before)
			p.save()
			if p.tally.Grown > mutantRoom {
				t.Errorf("until mutant %d of seed %d the process grew by %d MiB", i, seed,
					p.tally.Grown>>20)
			}
		}
	}
	p.save()
}

// TestMutantsApart: whatever becomes of a module, the host goes on, soon, and grows by little. Each
// part of the mutants has a process of its own, so that one that fails, or hangs, can be named.
func TestMutantsApart(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(mutantsEnv))
	if err != nil {
		t.Skipf("%s=1000000 makes so many mutants", mutantsEnv)
	}
	seed, parts, dir := rand.Uint64(), runtime.NumCPU(), t.TempDir()
	if asked, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64); err == nil {
		seed = asked
	}
	if asked, err := strconv.Atoi(os.Getenv(partsEnv)); err == nil && asked > 0 {
		parts = asked
	}
	if asked := os.Getenv(folderEnv); asked != "" {
		dir = asked
	}
	if err := os.MkdirAll(filepath.Join(dir, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	goSeed(t, filepath.Join(dir, "go.wasm"))
	t.Logf("seed %d: %s=%d makes the same mutants, %s=N the Nth alone", seed, seedEnv, seed,
		mutantEnv)
	r := longRun{t: t, dir: dir, seed: seed, parts: parts, n: n}
	ended := make(chan error, parts)
	for number := range parts {
		go func() { ended <- r.process(number) }()
	}
	r.watch(ended)
	sum, err := r.sum()
	if err != nil {
		t.Fatal(err)
	}
	sum.report(t)
	sum.judge(t, n)
}

// longRun is a run of several processes.
type longRun struct {
	t     *testing.T
	dir   string
	seed  uint64
	parts int
	n     int
}

// process runs one part to its end, and kills it when it stands still.
func (r longRun) process(number int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^TestMutantPart$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d of %d, seed %d", partEnv, number, r.parts,
		r.n, r.seed), folderEnv+"="+r.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := &tail{limit: 1 << 20}
	cmd.Stdout, cmd.Stderr = said, said
	// The system ends a child whose parent's thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		r.guard(number, stop, cancel)
	}()
	err = cmd.Wait()
	close(stop)
	if err != nil {
		at, _ := os.ReadFile(atFile(r.dir, number))
		return fmt.Errorf("part %d ended at mutant %s of seed %d: %w\n%s", number,
			strings.TrimSpace(string(at)), r.seed, err, said)
	}
	return nil
}

// guard ends a part that is at one mutant for too long.
func (r longRun) guard(number int, stop chan struct{}, kill func()) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	last, since := "", time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		at, _ := os.ReadFile(atFile(r.dir, number))
		if string(at) != last {
			last, since = string(at), time.Now()
		} else if time.Since(since) > mutantStall {
			kill()
			return
		}
	}
}

// watch waits for all parts and tells now and then how far they are.
func (r longRun) watch(ended chan error) {
	begin, tick := time.Now(), time.NewTicker(time.Minute)
	defer tick.Stop()
	for left := r.parts; left > 0; {
		select {
		case err := <-ended:
			left--
			if err != nil {
				r.t.Error(err)
			}
		case <-tick.C:
			if sum, err := r.sum(); err == nil {
				fmt.Fprintf(os.Stderr, "%d mutants in %v: %d changed in instructions and called, "+
					"%d of Go\n", sum.Done, time.Since(begin).Round(time.Second), sum.called(""),
					sum.called("go"))
			}
		}
	}
}

// sum adds up what all parts have done.
func (r longRun) sum() (*tally, error) {
	sum := newTally(r.seed, r.parts)
	for number := range r.parts {
		c, err := readTally(r.dir, number, r.seed, r.parts)
		if err != nil {
			return nil, err
		}
		sum.merge(c)
	}
	return sum, nil
}
