package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/plugins"
)

// topPart is what the lower half of the screen shows.
type topPart int

// The parts.
const (
	partRequests topPart = iota
	partPolicies
	partHelp
)

// topLine is what a line is, for its colour.
type topLine int

// The kinds of lines.
const (
	lineText topLine = iota
	lineTitle
	lineHead
	lineAlarm
)

// trendLength is how many looks a trend shows.
const trendLength = 12

// topScreen is all that one picture is made of.
type topScreen struct {
	state         admin.State
	policies      []plugins.Status
	problem       error // of the latest look
	part          topPart
	width, height int
	paint         func(topLine, string) string

	requests, prefill, decode []float64 // trends, oldest first
}

func plainly(_ topLine, text string) string { return text }

// take makes a look the newest.
func (t *topScreen) take(s admin.State, policies []plugins.Status) {
	t.state, t.policies = s, policies
	add := func(trend []float64, v float64) []float64 {
		trend = append(trend, v)
		return trend[max(0, len(trend)-trendLength):]
	}
	t.requests = add(t.requests, s.RequestsPerSecond)
	t.prefill = add(t.prefill, s.PrefillPerSecond)
	t.decode = add(t.decode, s.DecodePerSecond)
}

// picture collects lines that fit the width.
type picture struct {
	screen *topScreen
	lines  []string
}

func (p *picture) line(kind topLine, format string, args ...any) {
	text := printableRunes(fmt.Sprintf(format, args...))
	if width := p.screen.width; utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:max(0, width-1)]) + "…"
	}
	p.lines = append(p.lines, p.screen.paint(kind, strings.TrimRight(text, " ")))
}

// printableRunes keeps names that clients chose from writing to the terminal.
func printableRunes(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// drawTop draws one picture: what the instance is, its rates, its instances or itself, and the part
// that was chosen, as far as the height goes.
func drawTop(t *topScreen) string {
	p := &picture{screen: t}
	s := &t.state
	title := fmt.Sprintf("%s · %s · %s · up %s", s.Node, s.Role, s.Model, upFor(s.Uptime))
	if n := len(s.Instances); n > 0 {
		title += " · " + plural(n, "instance")
	}
	if s.Policy != "" {
		title += " · " + s.Policy
	}
	p.line(lineTitle, "%s", title)
	if t.problem != nil {
		p.line(lineAlarm, " no answer: %v", t.problem)
	}
	l := s.Latency
	p.line(lineText, " req/s %.1f %s   tok/s in %s %s  out %s %s", s.RequestsPerSecond,
		spark(t.requests), grouped(s.PrefillPerSecond), spark(t.prefill),
		grouped(s.DecodePerSecond), spark(t.decode))
	p.line(lineText, " TTFT p50 %s p99 %s   ITL p50 %s p99 %s   errors %d   429s %d",
		inMS(l.TTFT50), inMS(l.TTFT99), inMS(l.ITL50), inMS(l.ITL99), s.Errors, s.Refused)
	p.instances()
	switch t.part {
	case partPolicies:
		p.policies()
	case partHelp:
		p.help()
	default:
		p.requests()
	}
	if len(p.lines) > t.height {
		p.lines = p.lines[:t.height]
	}
	return strings.Join(p.lines, "\n")
}

// instances draws a line for each, or for the instance itself.
func (p *picture) instances() {
	s := &p.screen.state
	list := s.Instances
	if len(list) == 0 {
		list = []admin.Instance{{Name: s.Node, Role: s.Role, Up: s.Ready, Load: s.Load}}
	}
	p.line(lineHead, " %-14s %-8s %4s %4s  %-16s %9s %8s %7s", "NODE", "ROLE", "RUN", "WAIT", "KV",
		"BATCH tok", "STEP ms", "tok/s")
	for _, i := range list {
		kind, rest := lineText, ""
		switch {
		case i.Problem != "":
			kind, rest = lineAlarm, "  "+i.Problem
		case !i.Up:
			kind, rest = lineAlarm, "  "+cmp.Or(i.State, "down")
		case i.Pages.Leaked != 0:
			kind, rest = lineAlarm, fmt.Sprintf("  %d pages leaked", i.Pages.Leaked)
		}
		p.line(kind, " %-14s %-8s %4d %4d  %-16s %9s %8.1f %7s%s", clip(i.Name, 14), i.Role,
			i.Running, i.Waiting, bar(i.Pages), grouped(i.BatchTokens), i.StepMilliseconds,
			grouped(i.PrefillPerSecond+i.DecodePerSecond), rest)
	}
}

// requests draws those that run and wait.
func (p *picture) requests() {
	s := &p.screen.state
	if len(s.Instances) > 0 {
		p.line(lineHead, " requests: engine top --admin ADDR of an instance")
		return
	}
	name, owner := 16, 8 // Columns; an id of our own has 28 characters.
	if p.screen.width >= wideScreen {
		name, owner = 28, 16
	}
	p.line(lineHead, " %-*s %-*s %-17s %6s %5s %8s  %s", name, "REQUEST", owner, "TENANT",
		"STATE", "IN", "OUT", "AGE", "WAITING FOR")
	for _, r := range s.Requests {
		state := r.State
		if state == "prefilling" {
			state = fmt.Sprintf("prefill %d/%d", r.Computed, r.Prompt)
		}
		p.line(lineText, " %-*s %-*s %-17s %6d %5d %7.1fs  %s", name, clip(r.ID, name), owner,
			clip(r.Tenant, owner), state, r.Prompt, r.Output, r.Age, waitsFor(r))
	}
	if hidden := s.Running + s.Waiting - len(s.Requests); hidden > 0 {
		p.line(lineHead, " and %d more", hidden)
	}
}

// wideScreen is the width from which names are shown whole.
const wideScreen = 110

// clip cuts a name to a column.
func clip(name string, width int) string {
	if utf8.RuneCountInString(name) <= width {
		return name
	}
	return string([]rune(name)[:width-1]) + "…"
}

// waitsFor says what a request that does not run waits for.
func waitsFor(r admin.Request) string {
	text := ""
	switch r.State {
	case "waiting":
		text = "its turn"
		if r.Preempted > 0 {
			text = fmt.Sprintf("pages again (preempted %d times)", r.Preempted)
		}
	case "prepared":
		text = "the sender"
	case "receiving":
		text = "keys and values"
	}
	switch {
	case r.Words != "":
		text = strings.TrimPrefix(text+": "+r.Words, ": ")
	case r.Reason != 0:
		text = strings.TrimSpace(fmt.Sprintf("%s (policy reason %d)", text, r.Reason))
	}
	return text
}

// policies draws the modules.
func (p *picture) policies() {
	p.line(lineHead, " %-20s %-6s %-10s %9s %7s %10s", "POLICY", "VER", "STATE", "CALLS", "FAULTS",
		"P99")
	for _, m := range p.screen.policies {
		kind := lineText
		if m.Faults > 0 {
			kind = lineAlarm
		}
		p.line(kind, " %-20s %-6s %-10s %9d %7d %10s", m.Name, m.Version, m.State, m.Calls,
			m.Faults, m.P99)
	}
}

func (p *picture) help() {
	for _, text := range []string{
		"q quit · r requests · p policies · ? this page · the same key goes back", "",
		"req/s    requests that ended, over ten seconds",
		"tok/s    in: prompt tokens computed, out: tokens generated",
		"TTFT     time to the first token, ITL between tokens, of the latest 512",
		"RUN      prefilling and decoding, WAIT waiting, prepared and receiving",
		"KV       pages that requests hold, of all; cached pages count as free",
		"BATCH    tokens computed in a step, STEP its time in the model",
		"errors   answers with a 5xx status, 429s those with a limit reached",
	} {
		p.line(lineText, " %s", text)
	}
}

// bar shows how much of the pool requests hold.
func bar(p admin.Pages) string {
	if p.Total == 0 {
		return "–"
	}
	const cells = 10
	used := p.Held + p.Quarantine
	full := (used*cells + p.Total - 1) / p.Total
	return strings.Repeat("▇", full) + strings.Repeat("▁", cells-full) +
		fmt.Sprintf(" %d %%", used*100/p.Total)
}

// spark draws a trend, its largest value full.
func spark(values []float64) string {
	const levels = "▁▂▃▄▅▆▇█"
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if most > 0 {
			i = int(v / most * 7)
		}
		b.WriteRune([]rune(levels)[i])
	}
	return b.String()
}

// grouped writes a whole number with spaces between thousands.
func grouped(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return digits
}

// inMS writes milliseconds, from one second on seconds.
func inMS(ms float64) string {
	const second = 1000
	switch {
	case ms == 0:
		return "–"
	case ms >= second:
		return fmt.Sprintf("%.2f s", ms/second)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// upFor rounds to what matters.
func upFor(seconds float64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return d.String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
