package gguf

import (
	"encoding/binary"
	"fmt"
)

// cursor reads a file from front to back. The first error stays, and every later read gives zero.
type cursor struct {
	data []byte
	at   int
	err  error
}

// take returns the next n bytes.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if left := len(c.data) - c.at; n > uint64(left) {
		c.err = fmt.Errorf("%s takes %d bytes at byte %d, where the file has %d left: truncated?",
			what, n, c.at, left)
		return nil
	}
	from := c.at
	c.at += int(n)
	return c.data[from:c.at:c.at]
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads how many things follow that take at least so many bytes each.
func (c *cursor) count(each int, what string) uint64 {
	n := c.u64(what)
	if left := len(c.data) - c.at; c.err == nil && n > uint64(left/each) {
		c.err = fmt.Errorf("%s is %d, more than the %d bytes left can hold", what, n, left)
		return 0
	}
	return n
}

// text reads a string of at most so many bytes.
func (c *cursor) text(most uint64, what string) string {
	n := c.u64(what)
	if c.err == nil && n > most {
		c.err = fmt.Errorf("%s has %d bytes; at most %d are possible", what, n, most)
	}
	return string(c.take(n, what))
}
