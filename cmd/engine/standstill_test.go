package main

import (
	"testing"
	"time"
)

// TestStandstill: work that does not go on raises the alarm at the next look; a process that did
// not run itself raises none, unless nothing goes on once it runs again.
func TestStandstill(t *testing.T) {
	start := time.Unix(1000, 0)
	s := standstill{limit: 30 * time.Second, every: time.Second, last: start}
	for _, step := range []struct {
		at, since time.Duration
		want      bool
	}{
		{1 * time.Second, 0, false},
		{2500 * time.Millisecond, 29 * time.Second, false},
		{3 * time.Second, 30 * time.Second, true},
		{4 * time.Second, 31 * time.Second, true},
		{5 * time.Second, 0, false},
		{65 * time.Second, 60 * time.Second, false}, // It was stopped for a minute.
		{66 * time.Second, time.Second, false},
		{126 * time.Second, 60 * time.Second, false}, // Again, and nothing goes on afterwards.
		{127 * time.Second, 61 * time.Second, true},
		{187 * time.Second, 121 * time.Second, true}, // A late look takes no alarm back.
	} {
		s.look(start.Add(step.at), step.since)
		if s.stands != step.want {
			t.Errorf("at %v, since %v: %t", step.at, step.since, s.stands)
		}
	}
}
