package config

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Key is one [[key]] of the file that auth.keys_file names. The secret itself is nowhere.
type Key struct {
	Name   string
	Hash   [32]byte // SHA-256 of the secret
	Tenant string   // "" is whom the request names
	Models []string // those it may use; "*" is any
	// What is not set is as in [limits].
	RequestsPerMinute, TokensPerMinute, ConcurrentRequests Auto[int]
}

// maxKeys bounds a key file.
const maxKeys = 4096

// loadKeys reads the key file, if keys are asked for. Its problems stand in that file.
func (c *checker) loadKeys() {
	a := c.config.Auth
	if a.Mode != AuthKeys || a.KeysFile == "" || c.bad["auth.mode"] || c.bad["auth.keys_file"] {
		return
	}
	text, err := read(a.KeysFile)
	if err != nil {
		c.report(c.value("auth.keys_file"), "E309", "the key file cannot be read", err.Error(),
			keysHelp)
		return
	}
	keys, problems := parseKeys(a.KeysFile, text)
	c.config.Keys = keys
	c.problems = append(c.problems, problems...)
}

// parseKeys checks the text of a key file.
func parseKeys(name, text string) ([]Key, []Problem) {
	f := newFile(name, text)
	values, problem := f.decode()
	if problem != nil {
		return nil, []Problem{*problem}
	}
	k := &keyChecker{checker: checker{file: f, config: &Config{}, bad: map[string]bool{}}}
	for _, name := range inOrder(f.root, values) {
		if name == "key" {
			k.list(values[name], f.root.child(name))
			continue
		}
		k.report(f.root.child(name).key, "E101", fmt.Sprintf("unknown key %q in a key file", name),
			orElse(didYouMean(closest(name, []string{"key"})), "it holds [[key]] tables only"))
	}
	if len(k.keys) == 0 && k.problems == nil {
		k.report(place{}, "E311", "the key file holds no key", "nobody could enter", keysHelp)
	}
	slices.SortStableFunc(k.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return k.keys, k.problems
}

// keyChecker fills the list of keys.
type keyChecker struct {
	checker
	keys []Key
}

func (k *keyChecker) list(value any, n *node) {
	items, ok := tables(value)
	switch {
	case !ok:
		k.report(n.value, "E012", "[key] is a list of keys", "write [[key]], once for each")
		return
	case len(items) > maxKeys:
		k.report(n.value, "E311", fmt.Sprintf("%d keys", len(items)),
			fmt.Sprintf("at most %d", maxKeys))
		return
	}
	for i, item := range items {
		at := n.element(i)
		key := k.key(item, at)
		first := func(same func(Key) bool) int { return slices.IndexFunc(k.keys, same) }
		if j := first(func(o Key) bool { return o.Name == key.Name }); j >= 0 && key.Name != "" {
			k.report(at.child("name").value, "E303", fmt.Sprintf("two keys are called %q",
				key.Name),
				"a name tells keys apart in logs")
		}
		if j := first(func(o Key) bool { return o.Hash == key.Hash }); j >= 0 &&
			key.Hash != [32]byte{} {
			k.report(at.child("hash").value, "E303", "two keys have one hash",
				fmt.Sprintf("%s has it already", k.keys[j].Name))
		}
		k.keys = append(k.keys, key)
	}
}

// keyFields are the names in a [[key]].
var keyFields = []string{"name", "hash", "tenant", "models", "requests_per_minute",
	"tokens_per_minute", "concurrent_requests"}

// key checks one [[key]].
func (k *keyChecker) key(values map[string]any, n *node) Key {
	var key Key
	models := row{table: "key", key: "models", def: `["*"]`,
		at: func(*Config) any { return &key.Models }}
	k.column(&models, []any{"*"}, nil)
	for _, name := range inOrder(n, values) {
		kid, value := n.child(name), values[name]
		switch name {
		case "name":
			k.text(kid, "key.name", value, &key.Name, nameForm)
		case "tenant":
			k.text(kid, "key.tenant", value, &key.Tenant, tenantForm)
		case "hash":
			k.hash(kid, value, &key.Hash)
		case "models":
			k.column(&models, value, kid)
		case "requests_per_minute":
			k.limit(kid, name, value, &key.RequestsPerMinute)
		case "tokens_per_minute":
			k.limit(kid, name, value, &key.TokensPerMinute)
		case "concurrent_requests":
			k.limit(kid, name, value, &key.ConcurrentRequests)
		default:
			k.report(kid.key, "E101", fmt.Sprintf("unknown key %q in [[key]]", name),
				orElse(didYouMean(closest(name, keyFields)), "no such key"),
				"[[key]] has: "+strings.Join(keyFields, ", "))
		}
	}
	for _, need := range []string{"name", "hash"} {
		if _, given := values[need]; !given {
			k.report(n.value, "E102", "[[key]] has no "+need, "add "+need, keysHelp)
		}
	}
	return key
}

// column checks a value by a row of its own.
func (k *keyChecker) column(r *row, value any, n *node) {
	wrong := r.assign(k.config, value)
	if wrong == nil {
		return
	}
	where := n.value
	if wrong.item < len(n.items) {
		where = n.items[wrong.item].value
	}
	k.report(where, wrong.code, wrong.message, wrong.label, wrong.help...)
}

func (k *keyChecker) limit(n *node, name string, value any, into *Auto[int]) {
	r := row{table: "key", key: name, def: "0", least: "0", most: mostPerMinute,
		at: func(*Config) any { return into }}
	k.column(&r, value, n)
}

// hash reads "sha256:HEX".
func (k *keyChecker) hash(n *node, value any, into *[32]byte) {
	s, ok := value.(string)
	if !ok {
		k.report(n.value, codeType, "key.hash must be a string", `write "sha256:HEX"`)
		return
	}
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(into) {
		p := n.value
		k.report(p, codeForm, "key.hash is not the SHA-256 of a key", `write "sha256:" and 64 hex `+
			"digits", "the secret itself does not belong in the file: `printf %s KEY | sha256sum` "+
			"prints the digits")
		return
	}
	copy(into[:], raw)
}

// tenantForm is a tenant's name as a header could hold it.
var tenantForm = &form{"a tenant's name", func(s string) string {
	const most = 128
	if len(s) > most || strings.TrimFunc(s,
		func(r rune) bool { return r >= ' ' && r <= '~' }) != "" {
		return "write at most 128 printable ASCII characters"
	}
	return ""
}}
