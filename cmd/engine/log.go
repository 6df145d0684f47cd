package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"

	"github.com/kvrelay/engine/host/config"
)

// newLogger writes text on a terminal and JSON elsewhere, unless the configuration says which.
// least is the level below which nothing is written whatever the configuration says.
func newLogger(cfg *config.Config, w io.Writer, least slog.Level) *slog.Logger {
	level := new(slog.LevelVar)
	level.Set(max(least, logLevel(cfg)))
	return slog.New(newHandler(cfg, w, level))
}

func newHandler(cfg *config.Config, w io.Writer, level slog.Leveler) slog.Handler {
	format := cfg.Telemetry.LogFormat
	if format == "auto" {
		format = "json"
		if isTerminal(w) {
			format = "text"
		}
	}
	if format == "json" {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05",
		NoColor: os.Getenv("NO_COLOR") != "" || !isTerminal(w)})
}

func logLevel(cfg *config.Config) slog.Level {
	var level slog.Level
	if level.UnmarshalText([]byte(cfg.Telemetry.LogLevel)) != nil {
		return slog.LevelInfo // Cannot be: the configuration was checked.
	}
	return level
}

// isTerminal reports whether a stream is a terminal and not a file, a pipe or /dev/null.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	raw, err := f.SyscallConn() // Fd would make reads of it wait in a thread of their own.
	if err != nil {
		return false
	}
	terminal := false
	err = raw.Control(func(fd uintptr) { terminal = isTTY(fd) })
	return err == nil && terminal
}
