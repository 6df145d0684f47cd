package api

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/kvrelay/engine/host/openai"
)

// callParser finds tool calls in a text that arrives in pieces. Text that is no call is shown as it
// is; a call's arguments are handed on while they come.
type callParser struct {
	style style
	one   bool   // What follows the first call is dropped.
	held  string // not judged yet
	at    callPlace
	scan  braces // of the object at the beginning of held
	calls int
	space string // at the end of the content, not shown yet
}

// callPlace is where in the text a parser stands.
type callPlace int

const (
	beforeCalls callPlace = iota // a call may begin
	inText                       // none will
	inHead                       // behind the brace of a call, before its arguments
	inArguments
	inTail // behind the arguments, before the call's own closing brace
	behindCall
	ended // behind the only call that may come
)

// found is what a piece of text turned out to be.
type found struct {
	content string
	calls   []openai.CallDelta
}

// newCallParser makes a parser. In a forced output calls begin at once.
func newCallParser(s style, forced bool) *callParser {
	p := &callParser{style: s}
	if forced {
		p.at = behindCall
	}
	return p
}

// push adds text.
func (p *callParser) push(text string) found {
	p.held += text
	var out found
	for p.step(&out) {
	}
	return out
}

// flush returns what was held back: the text has ended.
func (p *callParser) flush() found {
	var out found
	switch p.at {
	case beforeCalls, inText, inHead:
		p.show(&out, p.held)
	case inArguments:
		p.argue(&out, p.held)
	}
	if p.calls == 0 {
		out.content += p.space
	}
	p.held, p.space = "", ""
	return out
}

// step judges some of held. It reports whether there may be more to judge.
func (p *callParser) step(out *found) bool {
	switch p.at {
	case beforeCalls:
		return p.seek(out)
	case inText:
		p.show(out, p.held)
		p.held = ""
	case inHead:
		return p.head(out)
	case inArguments:
		n, done := p.scan.run(p.held)
		p.argue(out, p.held[:n])
		p.held = p.held[n:]
		if done {
			p.at, p.scan = inTail, braces{depth: 1}
		}
		return done
	case inTail:
		n, done := p.scan.run(p.held)
		p.held = p.held[n:]
		if done {
			p.endCall()
		}
		return done
	case behindCall:
		return p.between(out)
	case ended:
		p.held = ""
	}
	return false
}

// show adds content. White space waits for what follows: before a call it is none.
func (p *callParser) show(out *found, text string) {
	text = p.space + text
	end := len(strings.TrimRight(text, white))
	out.content += text[:end]
	p.space = text[end:]
}

// white is the white space of JSON.
const white = " \t\r\n"

// seek looks for the beginning of calls.
func (p *callParser) seek(out *found) bool {
	if p.style.open == "" {
		rest := strings.TrimLeft(p.held, white)
		rest = strings.TrimPrefix(rest, pythonTag)
		switch {
		case rest == "" || strings.HasPrefix(pythonTag, rest):
			return false
		case rest[0] == '{':
			p.begin(rest)
		default:
			p.at = inText
		}
		return true
	}
	before, rest, ok := strings.Cut(p.held, p.style.open)
	if ok {
		p.show(out, before)
		p.held, p.at = rest, behindCall
		return true
	}
	hold := 0
	for n := min(len(p.style.open)-1, len(p.held)); n > hold; n-- {
		if strings.HasSuffix(p.held, p.style.open[:n]) {
			hold = n
		}
	}
	p.show(out, p.held[:len(p.held)-hold])
	p.held = p.held[len(p.held)-hold:]
	return false
}

// pythonTag is a token that may stand before a call of Llama's.
const pythonTag = "<|python_tag|>"

// begin starts with the object at the beginning of text.
func (p *callParser) begin(text string) { p.held, p.at, p.scan = text, inHead, braces{} }

// between passes over what stands between calls, up to the next one or to text.
func (p *callParser) between(out *found) bool {
	for p.held != "" {
		if p.style.close != "" && p.style.close[0] == p.held[0] {
			if after, ok := strings.CutPrefix(p.held, p.style.close); ok {
				p.held, p.at = after, beforeCalls
				return true
			}
			if strings.HasPrefix(p.style.close, p.held) {
				return false
			}
		}
		if after, ok := strings.CutPrefix(p.held, p.style.open); ok && p.style.open != "" {
			p.held = after
			continue
		}
		if p.style.open != "" && strings.HasPrefix(p.style.open, p.held) {
			return false
		}
		switch c := p.held[0]; {
		case c == '{':
			p.begin(p.held)
			return true
		case strings.IndexByte(white+";,", c) >= 0, p.style.list && (c == '[' || c == ']'):
			p.held = p.held[1:]
		default:
			p.at = inText
			return true
		}
	}
	return false
}

// callHead is the beginning of a call in the order that models are taught.
var callHead = regexp.MustCompile(
	`^\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*\{`)

// head looks for a call's name.
func (p *callParser) head(out *found) bool {
	if at := callHead.FindStringSubmatchIndex(p.held); at != nil {
		var name string
		if json.Unmarshal([]byte(p.held[at[2]:at[3]]), &name) == nil {
			p.call(out, name)
			p.held, p.at, p.scan = p.held[at[1]-1:], inArguments, braces{}
			return true
		}
	}
	n, done := p.scan.resume(p.held)
	if !done {
		return false
	}
	// The whole object is there in another order, or it is no call.
	object := p.held[:n]
	var call struct {
		Name                  string
		Arguments, Parameters json.RawMessage
	}
	err := json.Unmarshal([]byte(object), &call)
	if call.Arguments == nil {
		call.Arguments = call.Parameters
	}
	p.held = p.held[n:]
	if err != nil || call.Name == "" || call.Arguments == nil {
		p.at = inText
		p.show(out, p.style.open+object)
		return true
	}
	p.call(out, call.Name)
	p.argue(out, string(call.Arguments))
	p.endCall()
	return true
}

// endCall goes on behind a call's closing brace.
func (p *callParser) endCall() {
	p.at = behindCall
	if p.one {
		p.at, p.held = ended, ""
	}
}

// call adds the first delta of a call.
func (p *callParser) call(out *found, name string) {
	p.calls++
	p.space = ""
	id := "call_" + randomHex()
	if p.style.list {
		id = randomHex()[:9] // Mistral's template wants exactly so many letters and digits.
	}
	out.calls = append(out.calls, openai.CallDelta{Index: p.calls - 1, ID: id, Type: "function",
		Function: openai.FunctionDelta{Name: name}})
}

// argue adds a piece of the last call's arguments.
func (p *callParser) argue(out *found, text string) {
	if text == "" {
		return
	}
	last := len(out.calls) - 1
	if last >= 0 && out.calls[last].ID == "" && out.calls[last].Index == p.calls-1 {
		out.calls[last].Function.Arguments += text
		return
	}
	out.calls = append(out.calls, openai.CallDelta{Index: p.calls - 1,
		Function: openai.FunctionDelta{Arguments: text}})
}

// braces finds the end of a JSON object or array that arrives in pieces.
type braces struct {
	depth           int
	quoted, escaped bool
	seen            int // bytes that resume has judged
}

// run judges a text and returns how much of it belongs to the value, and whether it ends there.
func (b *braces) run(text string) (n int, done bool) {
	for i := range len(text) {
		switch c := text[i]; {
		case b.escaped:
			b.escaped = false
		case b.quoted:
			b.escaped = c == '\\'
			b.quoted = c != '"'
		case c == '"':
			b.quoted = true
		case c == '{' || c == '[':
			b.depth++
		case c == '}' || c == ']':
			if b.depth--; b.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(text), false
}

// resume is run for a text that grows and is given from its beginning each time.
func (b *braces) resume(text string) (n int, done bool) {
	n, done = b.run(text[b.seen:])
	n += b.seen
	b.seen = n
	return n, done
}
