package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Compat is all that must be equal at both ends so that a page of one means the same at the other.
// Every value is compared as it stands.
type Compat struct {
	Model    string // digest of the model's configuration
	Weights  string // digest of its weights
	DType    string // of the KV: f32, f16, bf16, q8_0
	PageSize int    // slots
	Layers   int
	KVHeads  int
	HeadDim  int
	Rope     string // the rotation schedule in words, such as "theta=10000"
	Window   int    // tokens; 0 = none
	Sinks    int
	Numerics string // the class of summation order that the weights are computed in
	Protocol int    // ProtocolVersion; 0 is read as that
}

// property is one named value of a Compat as it travels. A peer of a later version may name more.
type property struct{ name, value string }

// properties lists the values in the order in which they travel and are digested.
func (c Compat) properties() []property {
	protocol := c.Protocol
	if protocol == 0 {
		protocol = ProtocolVersion
	}
	return []property{
		{"model", c.Model},
		{"weights", c.Weights},
		{"dtype", c.DType},
		{"page_size", strconv.Itoa(c.PageSize)},
		{"layers", strconv.Itoa(c.Layers)},
		{"kv_heads", strconv.Itoa(c.KVHeads)},
		{"head_dim", strconv.Itoa(c.HeadDim)},
		{"rope", c.Rope},
		{"window", strconv.Itoa(c.Window)},
		{"sinks", strconv.Itoa(c.Sinks)},
		{"numerics", c.Numerics},
		{"protocol", strconv.Itoa(protocol)},
	}
}

// Digest is the hex SHA-256 of all values.
func (c Compat) Digest() string { return CompatDigest([]Compat{c}) }

// Differences names each value in which other, the peer's, is not as c, with both.
func (c Compat) Differences(other Compat) []string {
	return differences(c.properties(), other.properties())
}

// differences compares by name; a value that only one side has is a difference too.
func differences(ours, theirs []property) []string {
	var found []string
	for _, p := range ours {
		value, ok := lookUp(theirs, p.name)
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s: here %s, there none", p.name, show(p.value)))
		case value != p.value:
			found = append(found, fmt.Sprintf("%s: here %s, there %s%s",
				p.name, show(p.value), show(value), Mend(p.name, p.value, value)))
		}
	}
	for _, p := range theirs {
		if _, ok := lookUp(ours, p.name); !ok {
			found = append(found,
				fmt.Sprintf("%s: here none, there %s", show(p.name), show(p.value)))
		}
	}
	return found
}

// Mend says in parentheses, behind a space, which settings make a value of a Compat equal at both
// ends; "" where none do. The name is that under which the value travels.
func Mend(name, here, there string) string {
	switch name {
	case "dtype":
		return " (" + setEither("kv_cache.dtype", here, there) + ")"
	case "numerics":
		ours, known := numericsSettings(here)
		theirs, known2 := numericsSettings(there)
		if !known || !known2 {
			return ""
		}
		var lines []string
		for i, key := range []string{"backend.numerics", "backend.activations"} {
			if ours[i] != theirs[i] {
				lines = append(lines, setEither(key, ours[i], theirs[i]))
			}
		}
		return " (" + strings.Join(lines, "; ") + ")"
	}
	return ""
}

// setEither is the line that mends one key, for either end. The peer's word is not trusted.
func setEither(key, here, there string) string {
	return fmt.Sprintf("set %s = %s here, or %s there", key, strconv.Quote(show(there)),
		strconv.Quote(show(here)))
}

// numericsSettings are backend.numerics and backend.activations of a class of the cpu device.
func numericsSettings(class string) (settings [2]string, known bool) {
	base, integers := strings.CutSuffix(class, "-int8")
	base, rounded := strings.CutSuffix(base, "-bf16")
	settings = [2]string{base, "f32"}
	switch {
	case rounded:
		settings[1] = "bf16"
	case integers:
		settings[1] = "int8"
	}
	return settings, base == "fma" || base == "tdp"
}

func lookUp(list []property, name string) (string, bool) {
	for _, p := range list {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// show keeps a peer's value fit for an error message: quoted where it is not a plain word, short.
func show(value string) string {
	const most = 64
	if len(value) > most {
		value = value[:most] + "…"
	}
	if quoted := strconv.Quote(value); value == "" || quoted != `"`+value+`"` {
		return quoted
	}
	return value
}

// CompatDigest is the hex SHA-256 over the values of all models of an engine in order, as they
// travel.
func CompatDigest(models []Compat) string {
	var text []byte
	for _, m := range models {
		text = appendProperties(text, m.properties())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// appendProperties writes a count and each name and value behind its length, 16 bits each.
func appendProperties(dst []byte, list []property) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(list)))
	for _, p := range list {
		dst = appendText(dst, p.name)
		dst = appendText(dst, p.value)
	}
	return dst
}

// appendText writes text behind its length, cut to what a length of 16 bits can say.
func appendText(dst []byte, text string) []byte {
	text = text[:min(len(text), maxText)]
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(text)))
	return append(dst, text...)
}
