package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const chatHelp = `  /stats             what the last turn took, and how full the context is
  /set               the settings; /set NAME VALUE changes one: temperature, top_p, top_k, min_p,
                     max_tokens, seed
  /system TEXT       tells the model how to behave, from the next turn on; without a text: nothing
  /new               begins a new conversation
  /quit              leaves
  A line that ends in \ goes on in the next. A message that begins with / needs a space before it.
`

// command does what a line that begins with a slash says.
func (c *chat) command(line string) (leave bool, err error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/quit":
		return true, nil
	case "/help":
		fmt.Fprint(c.err, chatHelp)
	case "/stats":
		c.stats()
	case "/set":
		return false, c.set(rest)
	case "/system":
		c.system = rest
		c.sayFull()
	case "/new":
		c.turns = nil
		c.sayFull()
	default:
		return false, fmt.Errorf("there is no %s; /help lists what there is", name)
	}
	return false, nil
}

// sayFull says what the conversation is now.
func (c *chat) sayFull() {
	system := "no system message"
	if c.system != "" {
		system = "with a system message"
	}
	fmt.Fprintf(c.err, "  %s, %s\n", plural(len(c.turns)/2, "turn"), system)
}

// stats says what the last turn took: of its prompt, what was cached had been computed for an
// earlier one.
func (c *chat) stats() {
	l := c.last
	fmt.Fprintf(c.err, "  context  %d of %d tokens · %s\n", l.prompt+len(l.ran.tokens),
		c.model.Context, plural(len(c.turns)/2, "turn"))
	if l.prompt == 0 {
		return
	}
	finish := string(l.ran.finish)
	if finish == "" {
		finish = "stopped"
	}
	fmt.Fprintf(c.err, "  last     %s\n", l.ran.sum(l.prompt, finish))
	fmt.Fprintf(c.err, "  prefill  %s · kv %s sent in %s · policy %d calls, %s\n",
		plural(l.ran.sent.Chunks, "chunk"), size(int(l.ran.sent.Bytes)),
		milliseconds(l.ran.sent.Elapsed), l.calls, milliseconds(l.wall))
}

// set changes a setting, or shows them all.
func (c *chat) set(rest string) error {
	s := &c.settings
	name, value, _ := strings.Cut(rest, " ")
	value = strings.TrimSpace(value)
	if rest == "" {
		c.showSettings()
		return nil
	}
	if value == "" {
		return fmt.Errorf("/set %s needs a value", name)
	}
	var err error
	switch name {
	case "temperature":
		err = setNumber(&s.sampling.Temperature, name, value, 2)
	case "top_p":
		err = setNumber(&s.sampling.TopP, name, value, 1)
	case "min_p":
		err = setNumber(&s.sampling.MinP, name, value, 1)
	case "top_k":
		err = setCount(&s.sampling.TopK, name, value, 0)
	case "max_tokens":
		err = setCount(&s.maxTokens, name, value, 1)
	case "seed":
		seed, fault := strconv.ParseUint(value, 10, 63)
		if fault != nil {
			return fmt.Errorf("seed %s: a whole number of at least 0", value)
		}
		s.sampling.Seed, s.seed = seed, &seed
	default:
		return fmt.Errorf("there is no setting %q; /help lists them", name)
	}
	if err == nil {
		c.showSettings()
	}
	return err
}

func setNumber(to *float64, name, value string, most float64) error {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil || !(x >= 0 && x <= most) {
		return fmt.Errorf("%s %s: between 0 and %v", name, value, most)
	}
	if name == "top_p" && x == 0 {
		x = math.SmallestNonzeroFloat64 // The likeliest token alone.
	}
	*to = x
	return nil
}

func setCount(to *int, name, value string, least int) error {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || int(n) < least {
		return fmt.Errorf("%s %s: a whole number of at least %d", name, value, least)
	}
	*to = int(n)
	return nil
}

func (c *chat) showSettings() {
	s, p := c.settings, c.settings.sampling
	most, seed := "what the context leaves", "random"
	if s.maxTokens > 0 {
		most = strconv.Itoa(s.maxTokens)
	}
	if s.seed != nil {
		seed = strconv.FormatUint(*s.seed, 10)
	}
	fmt.Fprintf(c.err, "  temperature %v · top_p %.3g · top_k %d · min_p %v · max_tokens %s · "+
		"seed %s\n", p.Temperature, p.TopP, p.TopK, p.MinP, most, seed)
}
