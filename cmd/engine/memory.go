package main

import (
	"bufio"
	"fmt"
	"os"
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
		most := int64(cfg.MemoryFraction * float64(freeMemory()))
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

// freeMemory is what this process may still take: the system's available memory, less where a
// control group allows less.
func freeMemory() int64 {
	free := int64(fallbackMemory)
	if kib, ok := memAvailable("/proc/meminfo"); ok {
		free = kib << 10
	}
	most, ok := readNumber("/sys/fs/cgroup/memory.max")
	used, ok2 := readNumber("/sys/fs/cgroup/memory.current")
	if ok && ok2 {
		free = min(free, max(0, most-used))
	}
	return free
}

// memAvailable reads the line of that name, in KiB.
func memAvailable(path string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
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
