package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/scheduler"
)

// poolPages is the size of the page pool: what was asked for, or one full request for each sequence
// as far as the memory goes. A pool that cannot hold one full request is refused.
func (s *setup) poolPages() (int, error) {
	if s.pages > 0 {
		return s.pages, nil
	}
	free, _ := memoryOf(s.device)
	pages, problem := planPool(s.cfg, s.schedulerOptions(0), s.prefixSize, free)
	if problem != nil {
		return 0, badConfig{*problem}
	}
	return pages, nil
}

// planPool computes the pool from what is free, for the requests that a scheduler of these options
// takes and pages of pageBytes.
func planPool(
	cfg *config.Config, o scheduler.Options, pageBytes, free int64,
) (int, *config.Problem) {
	kv, context := cfg.KVCache, o.MaxModelLen
	one := o.Least(context) + 1 // One stays free beside a running sequence.
	pages, key := (fullRequest(o)+1)*o.MaxSeqs, "kv_cache.memory_fraction"
	most := int64(kv.MemoryFraction * float64(free))
	from := fmt.Sprintf("%.2f of the %s that are free are %s", kv.MemoryFraction, size(int(free)),
		size(int(most)))
	if kv.Memory.Set {
		most, key = int64(kv.Memory.Value), "kv_cache.memory"
		pages, from = int(most/pageBytes), size(int(most))
		if most > free && free > 0 {
			return 0, tooMuch(cfg, most, free)
		}
	}
	pages = int(min(int64(pages), most/pageBytes))
	if pages >= one {
		return pages, nil
	}
	wrong := cfg.At(key)
	wrong.Code, wrong.Message = "E415", "the page pool is too small for one full request"
	wrong.Label = fmt.Sprintf("%s: %d pages of %d tokens, %s each", from, pages, kv.PageSize,
		size(int(pageBytes)))
	wrong.Help = []string{
		fmt.Sprintf("a request of %d tokens needs %d pages, which are %s", context, one,
			size(one*int(pageBytes))),
		fmt.Sprintf("lower model.max_model_len to %d, or raise %s",
			max(0, (pages-1)*kv.PageSize), key),
	}
	return 0, &wrong
}

// tooMuch is the problem of a page pool that this machine has no memory for.
func tooMuch(cfg *config.Config, most, free int64) *config.Problem {
	wrong := cfg.At("kv_cache.memory")
	wrong.Code, wrong.Message = "E416", "the page pool does not fit this machine"
	wrong.Label = fmt.Sprintf("%s, but %s are free beside the weights", size(int(most)),
		size(int(free)))
	wrong.Help = []string{`"auto" takes what the requests need, at most memory_fraction of it`}
	return &wrong
}

// fullRequest is how many pages one request of full length holds at most.
func fullRequest(o scheduler.Options) int {
	return max(o.Holds(o.MaxModelLen, cmp.Or(o.ChunkMax, o.TokenBudget)), o.Least(o.MaxModelLen))
}

// fallbackMemory is what is taken for free where the system does not tell.
const fallbackMemory = 4 << 30

// freeMemory is what this process may still take, and whether the system told.
func freeMemory() (free int64, known bool) { return freeMemoryIn("/") }

// freeMemoryIn reads a system's files: the available memory, less where a control group allows
// less. Of what a group uses, the pages of files count as free: the kernel takes them back before
// it lets a process die, and the weight files of a model just read are among them.
func freeMemoryIn(root string) (free int64, known bool) {
	free = fallbackMemory
	kib, known := memoryLine(filepath.Join(root, "proc/meminfo"), "MemAvailable:")
	if known {
		free = kib << 10
	}
	group := filepath.Join(root, "sys/fs/cgroup")
	most, ok := readNumber(filepath.Join(group, "memory.max"))
	used, ok2 := readNumber(filepath.Join(group, "memory.current"))
	if !ok || !ok2 {
		return free, known
	}
	for _, name := range []string{"inactive_file ", "active_file "} {
		files, _ := memoryLine(filepath.Join(group, "memory.stat"), name)
		used -= files
	}
	return min(free, max(0, most-max(0, used))), true
}

// memoryLine reads the number of the line that begins with name.
func memoryLine(path, name string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// residentIn is the memory that this process has in use and the most that it had, by the files of a
// system; false where it does not tell.
func residentIn(root string) (now, most int64, known bool) {
	status := filepath.Join(root, "proc/self/status")
	now, ok := memoryLine(status, "VmRSS:")
	most, ok2 := memoryLine(status, "VmHWM:")
	return now << 10, most << 10, ok && ok2
}

func readNumber(path string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// describePool is one line about the pool, for people.
func describePool(o scheduler.Options, pages int) string {
	return fmt.Sprintf("%d pages of %d tokens · %d requests of %d at once", pages,
		o.PageSize, pages/fullRequest(o), o.MaxModelLen)
}
