package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/host/config"
)

// poolPages is the size of the page pool: what was asked for, or one full request for each sequence
// as far as the memory goes. A pool that cannot hold one full request is refused.
func (s *setup) poolPages() (int, error) {
	pageSize, cfg := s.cfg.KVCache.PageSize, s.cfg.KVCache
	one := (s.context+pageSize-1)/pageSize + 1 // One page stays free beside a running sequence.
	pages := s.pages
	if pages == 0 {
		pages = one * s.cfg.Scheduler.MaxNumSeqs
		free, _ := freeMemory()
		most := int64(cfg.MemoryFraction * float64(free))
		if cfg.Memory.Set {
			most = int64(cfg.Memory.Value)
			pages = int(most / s.prefixSize)
		}
		pages = int(min(int64(pages), most/s.prefixSize))
	}
	if pages < one {
		return 0, fmt.Errorf("the page pool is too small: %s hold %d pages of %d tokens, "+
			"one request of "+
			"%d tokens needs %d; lower model.max_model_len to %d or raise kv_cache.memory",
			size(int(int64(pages)*s.prefixSize)), pages, pageSize, s.context, one,
			max(0, (pages-1)*pageSize))
	}
	return pages, nil
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

func readNumber(path string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// describePool is one line about the pool, for people.
func describePool(cfg *config.Config, pages, context int) string {
	tokens := pages * cfg.KVCache.PageSize
	return fmt.Sprintf("%d pages of %d tokens · %d requests of %d at once", pages,
		cfg.KVCache.PageSize, tokens/context, context)
}
