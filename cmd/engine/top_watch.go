package main

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/plugins"
)

// lookPatience bounds one look, so that the screen tells soon.
const lookPatience = 5 * time.Second

// lookEvery is how often the screen is drawn anew.
const lookEvery = time.Second

// watchTop draws until q. The library puts the terminal back on every way out, a panic included.
func watchTop(ctx context.Context, c *adminClient, s streams) error {
	paint := inColour
	if os.Getenv("NO_COLOR") != "" {
		paint = plainly
	}
	m := topModel{ctx: ctx, client: c, screen: topScreen{paint: paint, width: 80, height: 24}}
	last, err := topProgram(ctx, m, s).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // Somebody asked for the end.
	}
	if err != nil {
		return err
	}
	if m, ok := last.(topModel); ok && m.never {
		return m.screen.problem
	}
	return nil
}

// topProgram takes the terminal for a model.
func topProgram(ctx context.Context, m tea.Model, s streams) *tea.Program {
	return tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(s.in), tea.WithOutput(s.out))
}

// topModel is the state of the screen; the library calls its methods one at a time.
type topModel struct {
	ctx    context.Context
	client *adminClient
	screen topScreen
	seen   bool // a look came
	never  bool // the first look failed
}

// looked is what one look brought.
type looked struct {
	state    admin.State
	policies []plugins.Status
	err      error
}

// again asks for the next look.
type again struct{}

// Init implements tea.Model.
func (m topModel) Init() tea.Cmd { return m.look }

// look asks the instance; it runs beside the screen.
func (m topModel) look() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, lookPatience)
	defer cancel()
	var l looked
	l.state, l.err = look(ctx, m.client)
	if l.err == nil && l.state.Policy != "" {
		l.err = m.client.call(ctx, "GET", "/policies", nil, &l.policies)
	}
	return l
}

// Update implements tea.Model.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m.press(msg.String())
	case again:
		return m, m.look
	case looked:
		if m.screen.problem = msg.err; msg.err != nil && !m.seen {
			m.never = true
			return m, tea.Quit
		}
		if msg.err == nil {
			m.seen = true
			m.screen.take(msg.state, msg.policies)
		}
		return m, tea.Tick(lookEvery, func(time.Time) tea.Msg { return again{} })
	}
	return m, nil
}

// press takes a key.
func (m topModel) press(key string) (tea.Model, tea.Cmd) {
	part := map[string]topPart{"r": partRequests, "p": partPolicies, "?": partHelp}
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "esc":
		m.screen.part = partRequests
	case "r", "p", "?":
		if m.screen.part == part[key] {
			m.screen.part = partRequests // The same key again goes back.
			break
		}
		m.screen.part = part[key]
	}
	return m, nil
}

// View implements tea.Model.
func (m topModel) View() tea.View {
	text := ""
	if m.seen {
		text = drawTop(&m.screen)
	}
	v := tea.NewView(text)
	v.AltScreen = true
	v.WindowTitle = "engine top"
	return v
}

// inColour paints a line; the library leaves out what the terminal cannot show.
func inColour(kind topLine, text string) string {
	style := lipgloss.NewStyle()
	switch kind {
	case lineTitle:
		style = style.Bold(true).Foreground(lipgloss.Cyan)
	case lineHead:
		style = style.Faint(true)
	case lineAlarm:
		style = style.Foreground(lipgloss.Red)
	default:
		return text
	}
	return style.Render(text)
}
