package plugins

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kvrelay/engine/abi"
)

// lines takes the log lines of one policy, so many a second, and counts the rest.
type lines struct {
	log    *slog.Logger
	policy string
	most   int // lines a second
	drop   func(policy string, lines int)
	now    func() time.Time

	pinned bool // level is the lowest that is written
	level  int32

	mu      sync.Mutex
	second  time.Time // when the current second began
	written int       // lines in it
	dropped int
}

// slogLevel is the engine's level for one of the ABI: both count debug, info, warn, error evenly.
func slogLevel(level int32) slog.Level { return slog.Level(4 * level) }

// rename gives the policy its full name once it is known.
func (l *lines) rename(policy string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policy = policy
}

// pin makes a level the lowest that is written, whatever the log says: for a replay.
func (l *lines) pin(level int32) { l.pinned, l.level = true, level }

// lowest is the lowest level that reaches the log.
func (l *lines) lowest() int32 {
	if l.pinned {
		return l.level
	}
	for level := int32(abi.LogDebug); level < abi.LogOff; level++ {
		if l.log.Enabled(context.Background(), slogLevel(level)) {
			return level
		}
	}
	return abi.LogOff
}

// write logs a line. A level that does not exist is taken for the nearest.
func (l *lines) write(level int32, text string) {
	level = min(max(level, abi.LogDebug), abi.LogError)
	if !l.log.Enabled(context.Background(), slogLevel(level)) {
		return
	}
	if ok, policy := l.admit(); ok {
		l.log.Log(context.Background(), slogLevel(level), "policy says", "policy", policy,
			"line", text)
	}
}

// admit counts a line and says whether it may be written, and whose it is. When a new second begins
// it tells of what was dropped in the one before.
func (l *lines) admit() (bool, string) {
	l.mu.Lock()
	now, policy, told := l.now(), l.policy, 0
	if now.Sub(l.second) >= time.Second {
		told, l.dropped = l.dropped, 0
		l.second, l.written = now, 0
	}
	ok := l.written < l.most
	if ok {
		l.written++
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	if told > 0 {
		l.log.Warn("policy logs too much", "policy", policy, "dropped", told)
		l.drop(policy, told)
	}
	return ok, policy
}
