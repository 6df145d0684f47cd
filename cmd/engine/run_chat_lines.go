package main

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// typed is a line as the user typed it, without its end; or why it cannot be taken.
type typed struct {
	text string
	err  error
}

// lineLimit is how many bytes of a line a terminal keeps: more are dropped without a word, so that
// a line as long as this may have been longer. 0 is no limit.
func lineLimit() int {
	switch runtime.GOOS {
	case "linux":
		return 4095 // N_TTY, see termios(3)
	case "darwin":
		return 1023 // MAX_CANON
	}
	return 0
}

// maxTyped bounds a line where the terminal does not.
const maxTyped = 1 << 20

// readLines gives a terminal's lines until it ends. Whoever stops taking them leaves the reader
// behind: nothing but the end of the process ends a read of a terminal.
func readLines(in io.Reader) <-chan typed {
	lines := make(chan typed)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxTyped)
		for scanner.Scan() {
			line := typed{text: strings.TrimSuffix(scanner.Text(), "\r")}
			if most := lineLimit(); most > 0 && len(line.text) >= most {
				line = typed{err: fmt.Errorf("a terminal keeps %d bytes of a line, so the end of "+
					"this one may be lost; end each part in \\, or pipe the text in", most)}
			}
			lines <- line
		}
		if err := scanner.Err(); err != nil {
			lines <- typed{err: fmt.Errorf("read the terminal: %w", err)}
		}
	}()
	return lines
}
