package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/plugins"
)

// busyState is an instance with something in every place.
func busyState() admin.State {
	return admin.State{
		Node: "p0", Role: "prefill", Model: "m", Uptime: 11530, Ready: true, Policy: "sjf-aging@3",
		Load: admin.Load{Running: 2, Waiting: 5, Pages: admin.Pages{Free: 40, Held: 45, Cached: 10,
			Quarantine: 5, Total: 100}, RequestsPerSecond: 4.1, PrefillPerSecond: 2310.4,
			DecodePerSecond: 412, BatchTokens: 2048, StepMilliseconds: 118, Refused: 3},
		Latency: admin.Latency{TTFT50: 310, TTFT99: 1900, ITL50: 33, ITL99: 71},
		Requests: []admin.Request{
			{ID: "req_9aa", Tenant: "acme", State: "prefilling", Prompt: 3812, Computed: 1536,
				Age: 2.1},
			{ID: "req_9ab", Tenant: "beta", State: "waiting", Prompt: 210, Age: 1.4, Reason: 3},
			{ID: "req_9ac", State: "waiting", Reason: 2, Words: "too late already"},
			{ID: "bad\x1b[31m", Tenant: "x", State: "waiting", Preempted: 2},
		},
	}
}

func TestTopScreens(t *testing.T) {
	fleet := busyState()
	fleet.Role, fleet.Node, fleet.Policy, fleet.Requests = "router", "r0", "", nil
	fleet.Instances = []admin.Instance{
		{Name: "p0", Role: "prefill", Up: true, Load: fleet.Load, Policy: "fcfs"},
		{Name: "d0", Role: "decode", Problem: "connection refused"},
		{Name: "d1", Role: "decode", Up: true,
			Load: admin.Load{Pages: admin.Pages{Total: 9, Leaked: 1}}},
	}
	policies := []plugins.Status{{Name: "sjf-aging", Version: "3", State: "active", Calls: 4600,
		Faults: 2, P99: 9800 * time.Nanosecond}}
	var got strings.Builder
	for _, c := range []struct {
		title  string
		screen topScreen
	}{
		{"requests", topScreen{state: busyState(), width: 120, requests: []float64{1, 4, 2}}},
		{"policies", topScreen{state: busyState(), width: 100, part: partPolicies,
			policies: policies}},
		{"help, narrow", topScreen{state: busyState(), width: 60, part: partHelp}},
		{"a router", topScreen{state: fleet, width: 120}},
		{"no answer", topScreen{state: busyState(), width: 80, problem: errors.New("gone")}},
		{"nothing", topScreen{width: 80}},
	} {
		c.screen.height, c.screen.paint = 40, plainly
		text := drawTop(&c.screen)
		got.WriteString("==== " + c.title + "\n" + text + "\n")
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > c.screen.width {
				t.Errorf("%s: a line of %d columns: %s", c.title, n, line)
			}
		}
	}
	const golden = "testdata/top.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readText(t, golden); got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

func TestTopFitsTheHeight(t *testing.T) {
	s := topScreen{state: busyState(), width: 80, height: 5, paint: plainly}
	if n := strings.Count(drawTop(&s), "\n"); n != 4 {
		t.Errorf("%d lines", n+1)
	}
}

// TestTopKeys plays the keys on the model of the screen.
func TestTopKeys(t *testing.T) {
	m := topModel{screen: topScreen{paint: inColour, width: 80, height: 20}}
	play := func(msg tea.Msg) tea.Cmd {
		next, cmd := m.Update(msg)
		m = next.(topModel)
		return cmd
	}
	press := func(key rune) tea.Cmd { return play(tea.KeyPressMsg{Code: key, Text: string(key)}) }
	if play(looked{state: busyState()}) == nil || !m.seen {
		t.Fatal("no next look is planned")
	}
	for _, c := range []struct {
		key  rune
		want topPart
	}{{'p', partPolicies}, {'?', partHelp}, {'?', partRequests}, {'p', partPolicies},
		{'p', partRequests}, {'r', partRequests}, {'x', partRequests}} {
		if press(c.key); m.screen.part != c.want {
			t.Errorf("%c shows part %d", c.key, m.screen.part)
		}
	}
	play(tea.WindowSizeMsg{Width: 50, Height: 10})
	if v := m.View(); m.screen.width != 50 || !v.AltScreen || !strings.Contains(v.Content, "p0") {
		t.Errorf("after a change of the window: %+v", v)
	}
	play(looked{err: errors.New("gone")})
	if v := m.View(); !strings.Contains(v.Content, "no answer: gone") || m.never {
		t.Errorf("an instance that went: %s", v.Content)
	}
	if cmd := press('q'); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
	m = topModel{}
	if cmd := play(looked{err: errors.New("no")}); !m.never || cmd() != tea.Quit() {
		t.Error("an instance that never answered is waited for")
	}
}

// breaking is a screen that panics once it is drawn.
type breaking struct{}

func (breaking) Init() tea.Cmd { return nil }

func (b breaking) View() tea.View {
	v := tea.NewView("drawn")
	v.AltScreen = true
	return v
}

func (b breaking) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if _, ok := msg.(again); ok {
		panic("a fault of ours")
	}
	return b, nil
}

// alerting is a terminal that tells once the screen was taken.
type alerting struct {
	strings.Builder
	taken func()
}

const takeScreen, giveScreen = "\x1b[?1049h", "\x1b[?1049l"

func (a *alerting) Write(p []byte) (int, error) {
	n, err := a.Builder.Write(p)
	if a.taken != nil && strings.Contains(a.String(), takeScreen) {
		a.taken()
		a.taken = nil
	}
	return n, err
}

// TestTopGivesTheTerminalBack: after a panic the screen before is there again, with its cursor.
func TestTopGivesTheTerminalBack(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	var out alerting
	p := topProgram(t.Context(), breaking{}, streams{strings.NewReader(""), &out, &out})
	out.taken = func() { go p.Send(again{}) }
	if _, err := p.Run(); !errors.Is(err, tea.ErrProgramPanic) {
		t.Fatal(err)
	}
	const hidden, shown = "\x1b[?25l", "\x1b[?25h"
	text := out.String()
	if strings.LastIndex(text, takeScreen) > strings.LastIndex(text, giveScreen) ||
		strings.LastIndex(text, hidden) > strings.LastIndex(text, shown) {
		t.Errorf("%q", text)
	}
}

func TestMeter(t *testing.T) {
	at := time.Unix(1000, 0)
	m := newMeter(func() time.Time { return at })
	var s admin.State
	m.read(&s)
	if s.RequestsPerSecond != 0 || s.Latency != (admin.Latency{}) || s.BatchTokens != 0 {
		t.Errorf("at rest: %+v", s)
	}
	for i := range 20 { // One a second; the last ten whole seconds count.
		at = at.Add(time.Second)
		m.answered(200)
		m.step(30+i, 10, 5*time.Millisecond)
		m.step(0, 10, 15*time.Millisecond)
		m.token(true, time.Duration(i)*time.Millisecond)
	}
	for range 2 * meterSamples {
		m.token(false, time.Second)
	}
	m.answered(429)
	m.answered(503)
	m.turnedAway(429)
	m.turnedAway(401)
	m.read(&s)
	if s.RequestsPerSecond != 1 || s.DecodePerSecond != 20 || s.PrefillPerSecond != 43.5 ||
		s.StepMilliseconds != 10 || s.BatchTokens != 31.75 || s.Refused != 2 || s.Errors != 1 ||
		s.Uptime != 20 || s.Latency.TTFT50 != 9 || s.Latency.ITL99 != 1000 {
		t.Errorf("%+v", s)
	}
	at = at.Add(time.Hour)
	m.read(&s)
	if s.RequestsPerSecond != 0 {
		t.Errorf("an hour later: %+v", s)
	}
}
