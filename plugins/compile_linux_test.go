package plugins

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// backEnv makes TestEveryThreadStandsBack the process that stands back.
const backEnv = "ENGINE_TEST_STAND_BACK"

// TestEveryThreadStandsBack: a process that limited itself has no thread that could hold up another
// process, among those that it had and those that it starts afterwards.
func TestEveryThreadStandsBack(t *testing.T) {
	if os.Getenv(backEnv) == "" {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestEveryThreadStandsBack$")
		cmd.Env = append(os.Environ(), backEnv+"=1")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
		return
	}
	held := make(chan struct{})
	defer close(held)
	occupy := func() {
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			<-held
		}()
		<-started
	}
	occupy()
	if err := limitProcess(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		occupy()
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < 5 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, entry := range threads {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil || attr.Policy != unix.SCHED_BATCH || attr.Nice != compileNice {
			t.Errorf("thread %d: %+v, %v", id, attr, err)
		}
	}
}
