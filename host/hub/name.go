package hub

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Ref names a model on a hub.
type Ref struct {
	Org, Name string
	// Revision is a branch, a tag or a commit; "" is the branch main.
	Revision string
}

// Bounds of the hub's own names.
const (
	maxNameSize     = 96
	maxRevisionSize = 255
	maxFileSize     = 1024 // bytes of a file's name
	mainRevision    = "main"
)

// ParseRef reads ORG/NAME or ORG/NAME@REVISION. Whatever it accepts makes file names that stay in
// the cache.
func ParseRef(text string) (Ref, error) {
	name, revision, hasRevision := strings.Cut(text, "@")
	org, model, ok := strings.Cut(name, "/")
	if !ok || !plainPart(org) || !plainPart(model) || len(name) > maxNameSize {
		return Ref{}, fmt.Errorf("%.120q is not the name of a model: write ORG/NAME or "+
			"ORG/NAME@REVISION", text)
	}
	if hasRevision && !plainRevision(revision) {
		return Ref{}, fmt.Errorf("%.120q is not a branch, a tag or a commit", revision)
	}
	return Ref{org, model, revision}, nil
}

func (r Ref) String() string {
	if r.Revision == "" {
		return r.Model()
	}
	return r.Model() + "@" + r.Revision
}

// Model is ORG/NAME.
func (r Ref) Model() string { return r.Org + "/" + r.Name }

func (r Ref) revision() string {
	if r.Revision == "" {
		return mainRevision
	}
	return r.Revision
}

// folder is the model's folder in the cache.
func (r Ref) folder() string { return folderPrefix + r.Org + "--" + r.Name }

// plainPart checks ORG or NAME by the hub's rules.
func plainPart(part string) bool {
	for _, c := range []byte(part) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return part != "" && strings.Trim(part, "-.") == part && !strings.Contains(part, "--") &&
		!strings.Contains(part, "..") && !strings.HasSuffix(part, ".git")
}

// plainRevision checks a revision by the stricter half of git's rules: it becomes the name of a
// file below refs.
func plainRevision(revision string) bool {
	if len(revision) > maxRevisionSize || !filepath.IsLocal(filepath.FromSlash(revision)) {
		return false
	}
	for part := range strings.SplitSeq(revision, "/") {
		if part == "" || strings.Trim(part, ".") != part || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(revision, func(c rune) bool {
		return c <= ' ' || c == 0x7f || strings.ContainsRune(`\:?*[~^"<>|`, c)
	}) && !strings.Contains(revision, "..") && !strings.Contains(revision, "@{")
}

// isCommit says whether a text is the full name of a commit.
func isCommit(text string) bool { return isHash(text, 40) || isHash(text, 64) }

// isHash says whether a text is so many lower-case hexadecimal digits.
func isHash(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// checkFileName refuses the name of a file that would not stay in its snapshot.
func checkFileName(name string) error {
	ok := len(name) <= maxFileSize && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsFunc(name, func(c rune) bool {
			return c < ' ' || c == 0x7f || c == '\\' || c == ':'
		})
	for part := range strings.SplitSeq(name, "/") {
		ok = ok && part != "" && part != "." && part != ".."
	}
	if !ok {
		return fmt.Errorf("the name %.120q would leave the model's folder", name)
	}
	return nil
}

// errNotGGUF is for a file that is named, but is of a kind that comes by itself.
var errNotGGUF = errors.New("only a .gguf file is named; all else that an engine needs of a " +
	"model comes by itself")
