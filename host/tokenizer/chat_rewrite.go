package tokenizer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// The jinja library is written for chat templates, but parts from Jinja2 where it matters to
// a prompt: white space around tags, None and floats in text, methods and filters that leave
// cases out, variables that stay from one turn of a loop to the next. So a template is
// rewritten before the library compiles it: text becomes string literals, what is printed
// goes through py_str, methods and filters become ours (chat_filters.go), loops forget.

// rewriter writes the template that the library compiles.
type rewriter struct {
	parts  []string
	blocks []block
	loops  int
	names  map[string]bool // the names that the template reads
	// functions are ours that the template calls, by the names they have in it.
	functions map[string]jinja.Value
	// loopsOverContent says that the template takes a message's content apart.
	loopsOverContent bool
}

// block is a statement that waits for its end.
type block struct {
	name   string
	before int        // loops: the part in front of the loop
	body   int        // loops: the first part inside
	vars   []tagToken // loops: the loop's own variables
	sets   []string   // loops: the other variables that the body sets
	number int        // loops: a number of its own
	target string     // set blocks: the variable
	filter []tagToken // set blocks: the filters behind it
}

// rewriteTemplate translates a template.
func rewriteTemplate(source string) (*rewriter, error) {
	segments, err := lexTemplate(source)
	if err != nil {
		return nil, err
	}
	w := &rewriter{names: map[string]bool{}, functions: map[string]jinja.Value{}}
	for _, s := range segments {
		switch s.kind {
		case textSegment:
			w.write("{{ " + quoteJinja(s.text) + " }}")
		case outputSegment:
			var text string
			if text, err = w.expression(s.tokens); err == nil {
				w.write("{{ py_str(" + text + ") }}")
			}
		case statementSegment:
			err = w.statement(s.tokens)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", s.line, err)
		}
	}
	if n := len(w.blocks); n > 0 {
		return nil, fmt.Errorf("a %q is not closed", w.blocks[n-1].name)
	}
	return w, nil
}

func (w *rewriter) write(part string) { w.parts = append(w.parts, part) }

func (w *rewriter) statement(tokens []tagToken) error {
	if len(tokens) == 0 || tokens[0].kind != nameToken {
		return fmt.Errorf("a statement has no name")
	}
	name, rest := tokens[0].text, tokens[1:]
	if strings.HasPrefix(name, "end") {
		return w.end(name, rest)
	}
	switch name {
	case "elif", "else", "break", "continue":
		return w.plain(name, rest)
	case "set":
		return w.set(rest)
	case "for", "if", "macro", "call", "filter", "generation":
		return w.open(block{name: name}, rest)
	}
	return fmt.Errorf("the statement %q is not supported", name)
}

func (w *rewriter) plain(name string, rest []tagToken) error {
	text, err := w.expression(rest)
	w.write("{% " + name + " " + text + " %}")
	return err
}

func (w *rewriter) open(b block, rest []tagToken) error {
	if len(w.blocks) == maxBlocks {
		return fmt.Errorf("more than %d blocks in one another", maxBlocks)
	}
	if b.name == "filter" && len(rest) != 1 {
		return fmt.Errorf("a filter block of more than a filter's name is not supported")
	}
	if b.name == "for" {
		w.noteContentLoop(rest)
		b.number, b.before = w.loops, len(w.parts)
		in := slices.IndexFunc(rest, func(t tagToken) bool { return t.named("in") })
		b.vars = rest[:max(0, in)]
		w.loops++
		w.write("") // filled in at the end of the loop
		var err error
		if rest, err = w.filterPairs(b, rest); err != nil {
			return err
		}
	}
	if err := w.plain(b.name, rest); err != nil {
		return err
	}
	switch b.name {
	case "for":
		b.body = len(w.parts)
		w.write("")
	case "macro":
		w.write("{{ py_enter() }}")
	}
	w.blocks = append(w.blocks, b)
	return nil
}

// filterPairs rewrites "for a, b in pairs if condition": the library does not take the pair
// apart before it asks the condition. The pairs that pass are put on a list first.
func (w *rewriter) filterPairs(b block, rest []tagToken) ([]tagToken, error) {
	depth, at := 0, -1
	for i, t := range rest {
		switch {
		case t.kind == signToken && strings.Contains("([{", t.text):
			depth++
		case t.kind == signToken && strings.Contains(")]}", t.text):
			depth--
		case t.named("if") && depth == 0 && at < 0:
			at = i
		}
	}
	if at < 0 || len(b.vars) != 3 {
		return rest, nil
	}
	condition, err := w.expression(rest[at+1:])
	if err != nil {
		return nil, err
	}
	list := fmt.Sprintf("py_pairs%d", b.number)
	w.write("{% set " + list + " = [] %}")
	if err := w.plain("for", rest[:at]); err != nil {
		return nil, err
	}
	w.write("{% if " + condition + " %}{{ py_keep(" + list + ", " + b.vars[0].text + ", " +
		b.vars[2].text + ") }}{% endif %}{% endfor %}")
	return append(slices.Clone(rest[:len(b.vars)+1]), tagToken{nameToken, list}), nil
}

// noteContentLoop sees "for x in message.content", "… message['content']" and "… content".
func (w *rewriter) noteContentLoop(rest []tagToken) {
	for i, t := range rest {
		if i < 2 || t.text != "content" || t.kind != nameToken && t.kind != stringToken {
			continue
		}
		if rest[i-1].named("in") || rest[i-1].is(".") || rest[i-1].is("[") {
			w.loopsOverContent = true
		}
	}
}

// end closes the block that was opened last.
func (w *rewriter) end(name string, rest []tagToken) error {
	n := len(w.blocks) - 1
	if n < 0 || "end"+w.blocks[n].name != name {
		return fmt.Errorf("unexpected %q", name)
	}
	b := w.blocks[n]
	w.blocks = w.blocks[:n]
	if b.name == "macro" {
		w.write("{{ py_leave() }}")
	}
	w.write("{% " + name + " %}")
	switch {
	case b.name == "for":
		w.forget(b)
	case b.name == "set" && len(b.filter) > 0:
		text, err := w.expression(b.filter)
		w.write("{% set " + b.target + " = " + b.target + " " + text + " %}")
		return err
	}
	return nil
}

// forget makes each turn of a loop begin with the variables as they were before the loop. It
// counts the turn as well.
func (w *rewriter) forget(b block) {
	body := "{{ py_tick() }}"
	for _, name := range b.sets {
		saved := fmt.Sprintf("py_outer%d_%s", b.number, name)
		w.parts[b.before] += "{% set " + saved + " = " + name + " %}"
		body += "{% set " + name + " = " + saved + " %}"
	}
	w.parts[b.body] = body
}

// set rewrites a set statement: of a variable, a namespace's attribute, several variables, or
// a block.
func (w *rewriter) set(rest []tagToken) error {
	assign := slices.IndexFunc(rest, func(t tagToken) bool { return t.is("=") })
	if len(rest) == 0 || rest[0].kind != nameToken {
		return fmt.Errorf("a set statement has no variable")
	}
	if assign < 0 {
		w.noteSet(rest[0].text)
		b := block{name: "set", target: rest[0].text, filter: rest[1:]}
		return w.open(b, rest[:1])
	}
	value, err := w.expression(rest[assign+1:])
	if err != nil {
		return err
	}
	target := rest[:assign]
	switch {
	case len(target) == 1:
		w.noteSet(target[0].text)
		w.write("{% set " + target[0].text + " = " + value + " %}")
	case len(target) == 3 && target[1].is("."):
		w.write("{% set " + target[0].text + "." + target[2].text + " = " + value + " %}")
	default:
		return w.setSeveral(target, value)
	}
	return nil
}

func (w *rewriter) setSeveral(target []tagToken, value string) error {
	w.write("{% set py_tuple = (" + value + ") %}")
	for i, t := range target {
		if i%2 == 1 && t.is(",") {
			continue
		}
		if i%2 == 1 || t.kind != nameToken {
			return fmt.Errorf("cannot set this")
		}
		w.noteSet(t.text)
		w.write("{% set " + t.text + " = py_tuple[" + strconv.Itoa(i/2) + "] %}")
	}
	return nil
}

// noteSet remembers a variable for the loop whose body sets it.
func (w *rewriter) noteSet(name string) {
	for i := len(w.blocks) - 1; i >= 0; i-- {
		b := &w.blocks[i]
		switch b.name {
		case "macro", "call":
			return
		case "for":
			own := slices.Contains(b.vars, tagToken{nameToken, name})
			if !own && !slices.Contains(b.sets, name) {
				b.sets = append(b.sets, name)
			}
			return
		}
	}
}

// quoteJinja writes a string literal for the library.
func quoteJinja(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}
