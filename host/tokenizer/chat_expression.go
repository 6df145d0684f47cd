package tokenizer

import (
	"slices"
	"strings"
)

// expression writes the tokens of an expression for the library.
func (w *rewriter) expression(tokens []tagToken) (string, error) {
	var out []string
	tokens = printOperands(tokens)
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		next := func(n int) tagToken {
			if i+n < len(tokens) {
				return tokens[i+n]
			}
			return tagToken{}
		}
		switch {
		case t.kind == stringToken:
			for next(1).kind == stringToken && i+1 < len(tokens) {
				t.text += next(1).text
				i++
			}
			out = append(out, quoteJinja(t.text))
		case t.is("|") && filterNamed(next(1).text) != nil:
			out = append(out, "|", w.uses("py_"+next(1).text, filterNamed(next(1).text)))
			i++
		case t.is(".") && next(2).is("(") && methodNamed(next(1).text) != nil:
			out = append(out, "|", w.uses("py_method_"+next(1).text, methodNamed(next(1).text)))
			i++
		case t.is(".") && next(1).kind == nameToken:
			out = append(out, ".", next(1).text)
			i++
		case t.named("is"):
			text, used, err := w.test(tokens[i:])
			if err != nil {
				return "", err
			}
			out = append(out, text)
			i += used - 1
		case t.named("dict") && next(1).is("(") && next(3).is("="):
			end := i + 1 + group(tokens[i+1:])
			text, err := w.expression(keywordsToPairs(tokens[i+1 : end]))
			if err != nil {
				return "", err
			}
			out = append(out, text)
			i = end - 1
		default:
			if t.kind == nameToken {
				w.names[t.text] = true
			}
			out = append(out, t.text)
		}
	}
	return strings.Join(out, " "), nil
}

// printOperands puts py_str() around what ~ joins, so that None and floats are written as
// Jinja2 does. An operand reaches to the next operator that binds less tightly.
func printOperands(tokens []tagToken) []tagToken {
	if !slices.ContainsFunc(tokens, func(t tagToken) bool { return t.is("~") }) {
		return tokens
	}
	type operand struct {
		start  int
		joined bool // a ~ stands in front
	}
	stack := []operand{{}}
	opens, closes := map[int]bool{}, map[int]bool{}
	end := func(at int, joins bool) {
		if o := &stack[len(stack)-1]; o.joined || joins {
			opens[o.start], closes[at] = true, true
		}
		stack[len(stack)-1] = operand{at + 1, joins}
	}
	for i, t := range tokens {
		switch {
		case t.kind == signToken && strings.Contains("([{", t.text):
			stack = append(stack, operand{start: i + 1})
		case t.kind == signToken && strings.Contains(")]}", t.text):
			end(i, false)
			stack = stack[:max(1, len(stack)-1)]
		case t.is("~"):
			end(i, true)
		case bindsLess(t):
			end(i, false)
		}
	}
	end(len(tokens), false)
	var out []tagToken
	for i := range len(tokens) + 1 {
		if closes[i] {
			out = append(out, tagToken{signToken, ")"})
		}
		if opens[i] {
			out = append(out, tagToken{nameToken, "py_str"}, tagToken{signToken, "("})
		}
		if i < len(tokens) {
			out = append(out, tokens[i])
		}
	}
	return out
}

// bindsLess reports operators that bind less tightly than ~, and what separates expressions.
func bindsLess(t tagToken) bool {
	const signs, names = " == != < > <= >= , : = ", " and or not is in if else "
	in := map[tagTokenKind]string{signToken: signs, nameToken: names}[t.kind]
	return strings.Contains(in, " "+t.text+" ")
}

// uses notes a function of ours that the template calls.
func (w *rewriter) uses(name string, f function) string {
	w.functions[name] = f.value(name)
	return name
}

// test rewrites "is [not] NAME [argument]" at the start of tokens; the library wants
// arguments in parentheses. used is how many tokens that was.
func (w *rewriter) test(tokens []tagToken) (text string, used int, err error) {
	text, used = "is", 1
	if used < len(tokens) && tokens[used].named("not") {
		text, used = "is not", 2
	}
	if used == len(tokens) {
		return text, used, nil
	}
	name := tokens[used].text
	if name == "sequence" { // of what JSON can hold, the same are sequences in Jinja2
		name = "iterable"
	}
	text += " " + name
	used++
	argument := operand(tokens[used:])
	if argument == 0 || tokens[used].is("(") {
		return text, used, nil
	}
	inner, err := w.expression(tokens[used : used+argument])
	return text + "(" + inner + ")", used + argument, err
}

// operand is the number of tokens of the value at the start of tokens, 0 if none is there.
func operand(tokens []tagToken) int {
	if len(tokens) == 0 {
		return 0
	}
	end := 1
	switch t := tokens[0]; {
	case t.is("["), t.is("{"), t.is("("):
		end = group(tokens)
	case t.kind == signToken:
		return 0
	case t.kind == nameToken && bindsLess(t):
		return 0
	}
	for end < len(tokens) {
		switch t := tokens[end]; {
		case t.is("[") || t.is("("):
			end += group(tokens[end:])
		case t.is(".") && end+1 < len(tokens):
			end += 2
		default:
			return end
		}
	}
	return end
}

// group is the number of tokens from an opening bracket to its partner.
func group(tokens []tagToken) int {
	depth := 0
	for i, t := range tokens {
		if t.kind == signToken && strings.Contains("([{", t.text) {
			depth++
		}
		if t.kind == signToken && strings.Contains(")]}", t.text) {
			depth--
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(tokens)
}

// keywordsToPairs turns (a=1, b=2) into {'a': 1, 'b': 2}: the library forgets the order of
// keyword arguments.
func keywordsToPairs(tokens []tagToken) []tagToken {
	out := slices.Clone(tokens)
	out[0].text, out[len(out)-1].text = "{", "}"
	depth := 0
	for i, t := range tokens {
		if t.kind != signToken {
			continue
		}
		switch {
		case strings.Contains("([{", t.text):
			depth++
		case strings.Contains(")]}", t.text):
			depth--
		case t.is("=") && depth == 1:
			out[i].text, out[i-1].kind = ":", stringToken
		}
	}
	return out
}
