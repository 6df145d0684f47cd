package main

import (
	"fmt"

	"github.com/kvrelay/engine/host/admin"
)

// refusals say in words why a decision about a request was not carried out.
var refusals = map[string]string{
	"idle":        "it had nothing to compute",
	"max_seqs":    "as many requests held pages as may (scheduler.max_num_seqs)",
	"max_admit":   "as many were admitted in the step as may be (scheduler.max_admit)",
	"pages":       "its pages were not free",
	"budget":      "the step's tokens were used up before it (scheduler.token_budget)",
	"closed":      "nobody was admitted: a starving or displaced request came first",
	"tenant":      "its tenant held as many requests as it may (tenants.NAME.max_seqs)",
	"guarded":     "the host had put it first once: no policy preempts it",
	"max_preempt": "as many were preempted in the step as may be (scheduler.max_preempt)",
	"begun":       "its stream had begun, or its pages were in use: it cannot be shed",
	"cancelled":   "it was being cancelled",
}

// preemptions say in words why a request lost its pages.
var preemptions = map[string]string{
	"memory":     "a running stream needed its pages",
	"policy":     "by the policy",
	"standstill": "nobody could go on",
}

// details says what the numbers of a line mean.
func details(l *admin.Line) string {
	var text string
	switch l.What {
	case "queued":
		text = fmt.Sprintf("%d waiting, it included", l.Last)
		if l.Last == 0 { // It holds pages.
			text = "for its rest"
		}
		if l.Tokens > 0 {
			text += fmt.Sprintf("; %d of its tokens are here", l.Tokens)
		}
	case "passed over":
		text = fmt.Sprintf("%s that named others; in %d no token was left", steps(l), l.Tokens)
	case "refused":
		text = fmt.Sprintf("%s: %s", steps(l), refusals[l.Why])
	case "skipped", "held back":
		text = steps(l)
	case "put first":
		text = steps(l) + ", by the host: it had waited for too long"
	case "admitted", "arrived", "reserved":
		text = fmt.Sprintf("%d tokens", l.Tokens)
		if l.What == "admitted" {
			text += " in the prefix cache"
		}
	case "computed", "going":
		text = fmt.Sprintf("%d tokens in %s, %d in the last", l.Tokens, steps(l), l.Last)
	case "preempted":
		text = fmt.Sprintf("%s; %d computed tokens given up", preemptions[l.Why], l.Tokens)
	case "ended":
		text = l.Why
	}
	if l.To-l.From >= 0.0005 {
		text += fmt.Sprintf("  %.3f s", l.To-l.From)
	}
	if l.Policy != "" {
		text += "  " + l.Policy
	}
	if l.Reason != 0 {
		text += fmt.Sprintf("  reason %d", l.Reason)
		if l.Words != "" {
			text += fmt.Sprintf(" %q", l.Words)
		}
	}
	return text
}

func steps(l *admin.Line) string {
	if l.Steps == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", l.Steps)
}
