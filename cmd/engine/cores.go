package main

import (
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// cores is how many threads compute where the configuration says "auto": one for each processor
// that this process may run on, and no more than the control groups give time for. Of a quota of
// 2.5 processors that is 2: threads wait for each other by looking, so a third one would use the
// quota up in the middle of a step, and all of them would stand still for the rest of the period.
// What is left over serves connections; Go itself runs them on the quota rounded up.
func cores() int {
	return coresIn("/", min(runtime.NumCPU(), runtime.GOMAXPROCS(0)))
}

// coresIn reads a system's files; allowed is the number of processors by affinity.
func coresIn(root string, allowed int) int {
	if quota, ok := quotaIn(root); ok {
		allowed = min(allowed, int(quota))
	}
	return max(allowed, 1)
}

// quotaIn is the processor time a second that the control groups of this process give it, the least
// of them; false where none sets a bound. Groups of both versions may be there at once.
func quotaIn(root string) (least float64, bound bool) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, false
	}
	take := func(quota float64, ok bool) {
		if ok && (!bound || quota < least) {
			least, bound = quota, true
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		_, line, _ = strings.Cut(line, ":")
		controllers, group, ok := strings.Cut(line, ":")
		switch {
		case !ok:
		case controllers == "":
			eachGroup(filepath.Join(root, "sys/fs/cgroup"), group,
				func(folder string) { take(quotaV2(folder)) })
		case hasController(controllers, "cpu"):
			for _, mount := range []string{controllers, "cpu"} {
				eachGroup(filepath.Join(root, "sys/fs/cgroup", mount), group,
					func(folder string) { take(quotaV1(folder)) })
			}
		}
	}
	return least, bound
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// eachGroup visits a group and those above it, up to the mount: in a container the mount may be the
// group itself, though its name is still that on the host.
func eachGroup(mount, group string, visit func(folder string)) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		visit(filepath.Join(mount, filepath.FromSlash(at)))
		if at == "/" {
			return
		}
	}
}

// quotaV2 reads cpu.max: a quota or "max", and its period.
func quotaV2(folder string) (float64, bool) {
	text, err := os.ReadFile(filepath.Join(folder, "cpu.max"))
	if err != nil {
		return 0, false
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return processors(quota, period)
}

// quotaV1 reads a quota, -1 for none, and its period.
func quotaV1(folder string) (float64, bool) {
	quota, err := os.ReadFile(filepath.Join(folder, "cpu.cfs_quota_us"))
	period, err2 := os.ReadFile(filepath.Join(folder, "cpu.cfs_period_us"))
	if err != nil || err2 != nil {
		return 0, false
	}
	return processors(strings.TrimSpace(string(quota)), strings.TrimSpace(string(period)))
}

func processors(quota, period string) (float64, bool) {
	q, err := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	return q / p, err == nil && err2 == nil && q > 0 && p > 0
}
