package lint

import "unicode/utf8"

// reader walks over bytes without ever passing their end. The first failure sticks: from then on
// every read returns zero and nothing is left, so loops over what is left end by themselves.
type reader struct {
	data   []byte
	at     int
	base   int // offset of data[0] in the file
	failed bool
	fail   func(code Code, offset int, format string, args ...any)
}

// left is how many bytes have not been read.
func (r *reader) left() int { return len(r.data) - r.at }

// offset is the place of the next byte in the file.
func (r *reader) offset() int { return r.base + r.at }

// bad records a problem at the next byte and stops the reader.
func (r *reader) bad(code Code, format string, args ...any) {
	if r.failed {
		return
	}
	r.fail(code, r.offset(), format, args...)
	r.failed = true
	r.at = len(r.data)
}

// badAt records a problem at an earlier byte, unless something failed before.
func (r *reader) badAt(at int, code Code, format string, args ...any) {
	if !r.failed {
		r.at = at
		r.bad(code, format, args...)
	}
}

func (r *reader) u8() byte {
	if r.left() < 1 {
		r.bad(Malformed, "the bytes end too early")
		return 0
	}
	c := r.data[r.at]
	r.at++
	return c
}

// bytes returns the next n bytes; it compares before it adds, so that no n can overflow.
func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(r.left()) {
		r.bad(Malformed, "%d bytes are announced but %d are left", n, r.left())
		return nil
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

// u32 reads an unsigned LEB128 number of at most five bytes whose unused bits are zero.
func (r *reader) u32() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		c := r.u8()
		if shift == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.bad(Malformed, "a number is longer than 32 bits")
	return 0
}

// signed reads a signed LEB128 number of the given width, 32, 33 or 64 bits. The unused bits of
// the last possible byte must repeat the sign.
func (r *reader) signed(width int) int64 {
	var v int64
	for shift := 0; shift < width; shift += 7 {
		c := r.u8()
		if left := width - shift; left < 7 {
			high := int8(c<<1) >> left // the sign bit and everything above it
			if c >= 0x80 || (high != 0 && high != -1) {
				break
			}
		}
		v |= int64(c&0x7f) << shift
		if c < 0x80 {
			if c >= 0x40 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.bad(Malformed, "a number is longer than %d bits", width)
	return 0
}

// count reads the length of a vector whose elements take at least size bytes each, and judges it
// against what is left and against the limit before anybody allocates for it.
func (r *reader) count(what string, limit, size int) int {
	at := r.at
	n := r.u32()
	switch {
	case r.failed:
		return 0
	case int64(n)*int64(size) > int64(r.left()):
		r.badAt(at, Malformed, "%d %s are announced but only %d bytes are left", n, what, r.left())
		return 0
	case int64(n) > int64(limit):
		r.badAt(at, TooMany, "%d %s; at most %d are allowed", n, what, limit)
		return 0
	}
	return int(n)
}

// name reads a UTF-8 name of at most limit bytes.
func (r *reader) name(limit int) string {
	at := r.at
	b := r.bytes(uint32(r.count("bytes of a name", limit, 1)))
	if !utf8.Valid(b) {
		r.badAt(at, Malformed, "a name is not UTF-8")
		return ""
	}
	return string(b)
}

// index reads an index and judges it against the size of its space.
func (r *reader) index(what string, size int) uint32 {
	at := r.at
	i := r.u32()
	if !r.failed && int64(i) >= int64(size) {
		r.badAt(at, BadIndex, "%s %d does not exist; there are %d", what, i, size)
		return 0
	}
	return i
}

// end demands that everything was read.
func (r *reader) end(what string) {
	if r.left() > 0 {
		r.bad(Malformed, "%d bytes are left over at the end of %s", r.left(), what)
	}
}
