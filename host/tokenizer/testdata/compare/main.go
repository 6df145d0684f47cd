// Command compare prints what this module's tokenizer and chat templates make of its input,
// for the Python scripts beside it to compare with the reference.
//
//	compare tokens DIR   stdin: {"text": …} or {"ids": […]} a line
//	compare chat DIR     stdin: {"template": …, "messages": […], "tools": […], …} a line
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/kvrelay/engine/host/tokenizer"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: compare tokens|chat DIR")
	}
	tok, err := tokenizer.Load(os.DirFS(args[1]))
	if err != nil {
		return err
	}
	answer := tokens
	if args[0] == "chat" {
		answer = chat
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	buffered := bufio.NewWriter(out)
	defer buffered.Flush()
	encoder := json.NewEncoder(buffered)
	for lines.Scan() {
		result, err := answer(tok, lines.Bytes())
		if err != nil {
			return err
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func tokens(tok *tokenizer.Tokenizer, line []byte) (any, error) {
	var q struct {
		Text *string
		IDs  []int32
	}
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, err
	}
	result := map[string]any{}
	if q.Text != nil {
		parse := tokenizer.EncodeOptions{ParseSpecial: true}
		q.IDs = tok.Encode(*q.Text, parse)
		parse.AddSpecial = true
		result["ids"] = q.IDs
		result["special"] = tok.Encode(*q.Text, parse)
		result["plain"] = tok.Encode(*q.Text, tokenizer.EncodeOptions{})
	}
	result["decoded"] = tok.Decode(q.IDs, false)
	result["skipped"] = tok.Decode(q.IDs, true)
	return result, nil
}

func chat(tok *tokenizer.Tokenizer, line []byte) (any, error) {
	var q struct {
		Template            string
		Messages, Tools     json.RawMessage
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Vars                map[string]json.RawMessage
	}
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, err
	}
	template, err := tok.ParseChatTemplate("template", q.Template)
	if err != nil {
		return map[string]any{"error": err.Error()}, nil
	}
	vars := map[string]any{}
	for name, value := range q.Vars {
		vars[name] = value
	}
	text, err := template.Render(q.Messages, tokenizer.RenderOptions{
		AddGenerationPrompt: q.AddGenerationPrompt, Tools: q.Tools, Vars: vars, KeepParts: true,
	})
	if err != nil {
		return map[string]any{"error": err.Error()}, nil
	}
	return map[string]any{"text": text}, nil
}
