package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Problem is one thing wrong with a file, or worth knowing about it, with its place and its remedy.
// Lines and columns count from 1, columns in characters; Line 0 means the file as a whole.
type Problem struct {
	Code    string // E101 and so on; "" makes it a note, which stops nothing
	Message string
	File    string
	Line    int
	Column  int
	Span    int    // characters that the carets mark
	Source  string // the line itself
	Label   string // what stands after the carets
	// Variable is the environment variable at fault, in place of a line.
	Variable string
	Help     []string
}

// shownProblems bounds a report: a file of another format can be wrong on every line.
const shownProblems = 50

// shownColumns bounds a source line in a report; a longer one is cut around the carets.
const shownColumns = 160

// Note says that the problem is a remark: the file is valid.
func (p Problem) Note() bool { return p.Code == "" }

// Failed says whether any of them is an error.
func Failed(problems []Problem) bool {
	for _, p := range problems {
		if !p.Note() {
			return true
		}
	}
	return false
}

// Report writes the errors one after another as a compiler would, and the notes in a line each,
// then the count of errors.
func Report(w io.Writer, problems []Problem) {
	count, names := 0, []string(nil)
	for i, p := range problems {
		if !p.Note() {
			count++
			if !slices.Contains(names, p.File) {
				names = append(names, p.File)
			}
		}
		if i < shownProblems {
			fmt.Fprint(w, p.String())
		}
	}
	if hidden := len(problems) - shownProblems; hidden > 0 {
		fmt.Fprintf(w, "… and %d more\n", hidden)
	}
	switch {
	case count == 1:
		fmt.Fprintf(w, "1 problem in %s\n", names[0])
	case count > 1:
		fmt.Fprintf(w, "%d problems in %s\n", count, strings.Join(names, " and "))
	}
}

// String is the problem as it is printed, with a line end.
func (p Problem) String() string {
	var b strings.Builder
	if p.Note() {
		b.WriteString("! note  ")
		if p.Line > 0 {
			fmt.Fprintf(&b, "%s:%d:%d  ", p.File, p.Line, p.Column)
		} else if p.Variable != "" {
			fmt.Fprintf(&b, "%s  ", p.Variable)
		}
		b.WriteString(brief(p.Message))
		for _, help := range p.Help {
			b.WriteString(" · " + help)
		}
		b.WriteByte('\n')
		return b.String()
	}
	fmt.Fprintf(&b, "error[%s]: %s\n", p.Code, brief(p.Message))
	gutter := ""
	if p.Line > 0 {
		number := fmt.Sprint(p.Line)
		gutter = strings.Repeat(" ", len(number))
		source, column := crop(p.Source, p.Column)
		fmt.Fprintf(&b, "%s--> %s:%d:%d\n", gutter, p.File, p.Line, p.Column)
		fmt.Fprintf(&b, "%s |\n", gutter)
		fmt.Fprintf(&b, "%s | %s\n", number, printable(source))
		carets := indent(source, column) + strings.Repeat("^", min(max(1, p.Span), shownColumns))
		fmt.Fprintf(&b, "%s | %s\n", gutter, strings.TrimRight(carets+" "+brief(p.Label), " "))
	}
	if p.Variable != "" {
		fmt.Fprintf(&b, " --> environment variable %s\n", brief(printable(p.Variable)))
		if p.Label != "" {
			fmt.Fprintf(&b, "  = %s\n", brief(p.Label))
		}
		gutter = " "
	}
	for _, help := range p.Help {
		fmt.Fprintf(&b, "%s = help: %s\n", gutter, help)
	}
	return b.String()
}

// brief bounds a text that may quote the file.
func brief(s string) string {
	if runes := []rune(s); len(runes) > 3*shownColumns {
		return string(runes[:3*shownColumns]) + "…"
	}
	return s
}

// crop cuts a long line around its marked part and returns the part's new column.
func crop(source string, column int) (string, int) {
	runes := []rune(source)
	if len(runes) <= shownColumns {
		return source, column
	}
	start := max(0, column-1-shownColumns/4)
	end := min(len(runes), start+shownColumns)
	cut := string(runes[start:end])
	if start > 0 {
		cut = "…" + cut
		column++
	}
	if end < len(runes) {
		cut += "…"
	}
	return cut, column - start
}

// indent is the white space under the characters before column: a tab stays a tab, so that the
// carets stand right whatever a tab's width is.
func indent(source string, column int) string {
	var b strings.Builder
	for _, r := range source {
		if column--; column < 1 {
			break
		}
		if r == '\t' {
			b.WriteByte('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// printable replaces control characters, one for one, so that a file cannot write to the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return '�'
		}
		return r
	}, s)
}
