package constrain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is a JSON value that remembers its place and the order of its members.
type node struct {
	pointer string
	members []field // of an object
	list    []*node // of an array
	raw     string  // of anything else, as it was written; "{" and "[" otherwise
}

type field struct {
	name  string
	value *node
}

func (n *node) object() bool { return n.raw == "{" }
func (n *node) array() bool  { return n.raw == "[" }
func (n *node) text() (string, bool) {
	if n.raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal([]byte(n.raw), &s)
	return s, err == nil
}

// get returns a member's value; nil when there is none.
func (n *node) get(name string) *node {
	for i := range n.members {
		if n.members[i].name == name {
			return n.members[i].value
		}
	}
	return nil
}

// readNode reads one JSON value. pointer is where it stands.
func readNode(raw []byte, pointer string) (*node, error) {
	if !json.Valid(raw) {
		return nil, fmt.Errorf("it is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	left := maxNodes
	return readValue(d, pointer, maxNesting, &left)
}

func readValue(d *json.Decoder, pointer string, depth int, left *int) (*node, error) {
	if *left--; *left < 0 {
		return nil, &SchemaError{pointer, "", fmt.Sprintf("more than %d values", maxNodes)}
	}
	if depth == 0 {
		return nil, &SchemaError{pointer, "", fmt.Sprintf("nested deeper than %d", maxNesting)}
	}
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	n := &node{pointer: pointer}
	switch t := token.(type) {
	case json.Delim:
		n.raw = t.String()
		return n, n.fill(d, depth, left)
	case string:
		n.raw = quote(t)
	case json.Number:
		n.raw = t.String()
	case bool:
		n.raw = strconv.FormatBool(t)
	case nil:
		n.raw = "null"
	}
	return n, nil
}

// fill reads the inside of an object or an array.
func (n *node) fill(d *json.Decoder, depth int, left *int) error {
	for d.More() {
		pointer, name := n.pointer+"/"+strconv.Itoa(len(n.list)), ""
		if n.object() {
			token, err := d.Token()
			if err != nil {
				return fmt.Errorf("read JSON: %w", err)
			}
			name, _ = token.(string)
			pointer = n.pointer + "/" + escapePointer.Replace(name)
			if n.get(name) != nil {
				return &SchemaError{n.pointer, name, "it is there twice"}
			}
		}
		value, err := readValue(d, pointer, depth-1, left)
		if err != nil {
			return err
		}
		if n.object() {
			n.members = append(n.members, field{name, value})
		} else {
			n.list = append(n.list, value)
		}
	}
	if _, err := d.Token(); err != nil { // The closing bracket.
		return fmt.Errorf("read JSON: %w", err)
	}
	return nil
}

var (
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// quote is a string as JSON, without the escapes meant for HTML.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("constrain: a string has no JSON: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// compact is the value as JSON without white space.
func (n *node) compact() string {
	switch {
	case n.object():
		var parts []string
		for _, m := range n.members {
			parts = append(parts, quote(m.name)+":"+m.value.compact())
		}
		return "{" + strings.Join(parts, ",") + "}"
	case n.array():
		var parts []string
		for _, e := range n.list {
			parts = append(parts, e.compact())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return n.raw
}

// kind is the JSON Schema type of a value.
func (n *node) kind() string {
	switch n.raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if strings.ContainsAny(n.raw, ".eE") {
		return "number"
	}
	return "integer"
}
