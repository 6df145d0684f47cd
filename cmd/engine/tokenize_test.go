package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestTokenizeLines(t *testing.T) {
	encode := func(text string) []int32 {
		ids := []int32{}
		for _, r := range text {
			ids = append(ids, r)
		}
		return ids
	}
	var out bytes.Buffer
	in := "\"ab\"\n\"\"\n\"\\u00e9\"\r\n"
	if err := tokenizeLines(strings.NewReader(in), &out, encode); err != nil {
		t.Fatal(err)
	}
	if want := "{\"ids\":[97,98]}\n{\"ids\":[]}\n{\"ids\":[233]}\n"; out.String() != want {
		t.Errorf("got %s want %s", out.String(), want)
	}
	err := tokenizeLines(strings.NewReader("\"a\"\nb\n"), &out, encode)
	if err == nil || !strings.Contains(err.Error(), "line 2 is not a JSON string") {
		t.Error(err)
	}
	err = tokenizeLines(failingReader{}, &out, encode)
	if err == nil || !strings.Contains(err.Error(), "read stdin: gone") {
		t.Error(err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("gone") }
