package main

import (
	"fmt"
	"io"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/hub"
)

// pullScreen shows how a pull goes on: bars on a terminal, elsewhere a line in the log for each
// tenth.
type pullScreen struct {
	model   hub.Ref
	log     *slog.Logger
	bars    *mpb.Progress // nil where there is no terminal
	present int
	begun   time.Time
	network atomic.Int64 // bytes that came; the bars read it while mu may be held

	mu     sync.Mutex
	files  []hub.File
	bytes  []int64    // of each file that are here
	first  []int64    // of each file that an earlier pull had left; -1 until it is known
	each   []*mpb.Bar // nil until the file's first byte
	whole  *mpb.Bar
	done   int
	tenths int64 // told
}

func newPullScreen(w io.Writer, model hub.Ref) *pullScreen {
	s := &pullScreen{model: model, log: newLogger(config.Default(), w, slog.LevelInfo)}
	if isTerminal(w) {
		s.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(24))
	}
	return s
}

// Plan implements hub.Watch.
func (s *pullScreen) Plan(fetch []hub.File, present int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files, s.present, s.begun = fetch, present, time.Now()
	s.bytes, s.each = make([]int64, len(fetch)), make([]*mpb.Bar, len(fetch))
	s.first = make([]int64, len(fetch))
	for i := range s.first {
		s.first[i] = -1
	}
	if s.bars != nil && len(fetch) > 0 {
		s.whole = s.bar(plural(len(fetch), "file"), s.total(), mpb.BarPriority(1<<20),
			decor.Any(s.rate, decor.WCSyncSpace))
		return
	}
	if len(fetch) > 0 {
		s.log.Info("pull", "model", s.model.String(), "files", len(fetch), "bytes", s.total(),
			"present", present)
	}
}

// bar adds a bar of so many bytes, with more behind it.
func (s *pullScreen) bar(
	name string, bytes int64, o mpb.BarOption, more ...decor.Decorator,
) *mpb.Bar {
	const most = 32
	if len(name) > most {
		name = "…" + name[len(name)-most+1:]
	}
	counters := decor.CountersKibiByte("% .1f / % .1f", decor.WCSyncSpace)
	return s.bars.New(bytes, mpb.BarStyle(), o,
		mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(append([]decor.Decorator{counters}, more...)...))
}

// rate is what comes in altogether.
func (s *pullScreen) rate(decor.Statistics) string {
	seconds := max(time.Since(s.begun).Seconds(), 0.1)
	return size(int(float64(s.network.Load())/seconds)) + "/s"
}

func (s *pullScreen) total() (bytes int64) {
	for _, f := range s.files {
		bytes += f.Size
	}
	return bytes
}

// Got implements hub.Watch.
func (s *pullScreen) Got(i int, bytes int64) {
	s.mu.Lock()
	s.bytes[i] = bytes
	if s.first[i] < 0 {
		s.first[i] = bytes
	}
	s.first[i] = min(s.first[i], bytes)
	sum, had := int64(0), int64(0)
	for j, n := range s.bytes {
		sum += n
		had += max(s.first[j], 0)
	}
	s.network.Store(sum - had)
	if s.bars != nil && s.each[i] == nil {
		s.each[i] = s.bar(path.Base(s.files[i].Name), s.files[i].Size, mpb.BarRemoveOnComplete())
	}
	bar, whole := s.each[i], s.whole
	tenths, total := sum, s.total()
	if total > 0 {
		tenths = sum * 10 / total
	}
	tell := s.bars == nil && tenths > s.tenths
	s.tenths = max(s.tenths, tenths)
	if bar != nil { // Within the lock: an older sum must not come last.
		bar.SetCurrent(bytes)
		whole.SetCurrent(sum)
	}
	s.mu.Unlock()
	if tell {
		s.log.Info("pull", "model", s.model.String(), "percent", tenths*10, "bytes", sum,
			"of", total)
	}
}

// Done implements hub.Watch.
func (s *pullScreen) Done(i int) {
	s.mu.Lock()
	s.done++
	bar, last := s.each[i], s.done == len(s.files)
	s.mu.Unlock()
	if bar != nil {
		bar.SetTotal(s.files[i].Size, true)
	}
	if last && s.whole != nil {
		s.whole.SetTotal(s.total(), true)
	}
}

// Say implements hub.Watch.
func (s *pullScreen) Say(text string) {
	if s.bars != nil {
		fmt.Fprintln(s.bars, text)
		return
	}
	s.log.Warn(text, "model", s.model.String())
}

// close leaves the screen in order; after a failure the bars stay where they were.
func (s *pullScreen) close(failed bool) {
	if s.bars == nil {
		return
	}
	if failed {
		s.mu.Lock()
		bars := append(s.each, s.whole)
		s.mu.Unlock()
		for _, bar := range bars {
			if bar != nil {
				bar.Abort(false)
			}
		}
	}
	s.bars.Wait()
}

// fetched is what came over the network.
func (s *pullScreen) fetched() (files int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done, s.network.Load()
}
