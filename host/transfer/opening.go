package transfer

import (
	"encoding/binary"
	"strings"
	"unicode"
)

// maxOpening bounds the payload of an opening frame: metadata, lease id and compat values.
const maxOpening = 128 << 10

// openFixedSize is the token, begin, end and the three counts of an opening frame.
const openFixedSize = 16 + 4 + 4 + 2 + 4 + 2

// maxProperties bounds the values of one model that an opening frame may name.
const maxProperties = 64

// opening is what a sender shows before it may write. The metadata is J and its MAC as they came
// from the receiver; lease, token and epoch are repeated so that the frame stands for itself.
type opening struct {
	pass
	lease    string
	window   Window
	metadata []byte
	models   [][]property
}

func (o *opening) append(dst []byte) []byte {
	dst = append(dst, o.token[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(o.window.Begin))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(o.window.End))
	dst = appendText(dst, o.lease)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(o.metadata)))
	dst = append(dst, o.metadata...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(o.models)))
	for _, m := range o.models {
		dst = appendProperties(dst, m)
	}
	return dst
}

// readOpening copies what it keeps: nothing of it points into the payload.
func readOpening(f frame) (*opening, *Error) {
	r := cursor{rest: f.payload}
	o := &opening{pass: pass{epoch: f.epoch}}
	copy(o.token[:], r.take(len(o.token)))
	o.window = Window{Begin: int(r.uint32()), End: int(r.uint32())}
	o.lease = r.text()
	o.metadata = append([]byte(nil), r.take(int(r.uint32()))...)
	models := int(r.uint16())
	if models > MaxModels {
		return nil, fault(Malformed, "%d models, the most are %d", models, MaxModels)
	}
	for range models {
		o.models = append(o.models, r.properties())
	}
	if r.bad || len(r.rest) != 0 {
		return nil, fault(Malformed, "the opening frame does not add up")
	}
	return o, nil
}

// cursor reads a payload from its front. Once it ran short everything it reads is zero.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.rest) {
		c.bad, c.rest = true, nil
		return nil
	}
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) text() string {
	n := int(c.uint16())
	c.bad = c.bad || n > maxText
	return string(c.take(n))
}

func (c *cursor) properties() []property {
	n := int(c.uint16())
	c.bad = c.bad || n > maxProperties
	var list []property
	for range n {
		if c.bad {
			return nil
		}
		list = append(list, property{name: c.text(), value: c.text()})
	}
	return list
}

// printable makes a peer's text fit for our logs and answers: no control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, text)
}
