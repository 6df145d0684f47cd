package router

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// wire words an error for the API. Clients are told no address of an instance: the log has them.
func (f *forward) wire(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if fault, ok := errors.AsType[*openai.Error](err); ok {
		text := fault.Message
		if fault.Status() >= 500 { // What is the client's own fault may quote its addresses.
			text = withoutAddresses(text)
		}
		return &generation.Error{Code: generation.Code(fault.Code), Message: text,
			Param: fault.Param, RetryAfter: fault.RetryAfter}
	}
	if g, ok := errors.AsType[*generation.Error](err); ok {
		return g
	}
	why := withoutAddresses(err.Error())
	if unusable(err) {
		return generation.Errorf(generation.CodeTransferFailed,
			"decode instance %s is not used after %d tokens: %s", f.decode, len(f.emitted), why)
	}
	return generation.Errorf(generation.CodeTransferFailed,
		"decode instance %s was lost after %d tokens: an instance did not answer: %s",
		f.decode, len(f.emitted), why)
}

// withoutAddresses leaves of an error's text the path of a URL, and of a connection its network.
func withoutAddresses(text string) string {
	for _, a := range []struct{ pattern, put string }{
		{`"?https?://[^/\s"]*([^\s"]*)"?`, "$1"},
		{`\b((?:tcp|udp)[46]?) \S+?(:\s|:?$)`, "$1$2"},
		{`\bunix [/@]\S+?(:\s|:?$)`, "unix$1"},
		{`\blookup [^\s:]+(?: on \S+)?: `, "lookup: "},
		{`(?:\b\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\]):\d+`,
			"(address)"},
	} {
		text = regexp.MustCompile(a.pattern).ReplaceAllString(text, a.put)
	}
	return text
}

// mostNamed is how many instances nobody tells of one by one.
const mostNamed = 4

// nobody says why no decode instance takes requests. The lock is held.
func (r *Router) nobody() *openai.Error {
	var why []string
	code := openai.CodeDraining
	for _, i := range r.pool.Snapshot() {
		if i.Role != placement.Decode {
			continue
		}
		text, drains := r.unused(i)
		if !drains {
			code = openai.CodeNoHealthyDecode
		}
		why = append(why, i.Name+" "+text)
	}
	if len(why) == 0 {
		return openai.Errorf(openai.CodeNoHealthyDecode, "", "no decode instance is listed")
	}
	if more := len(why) - mostNamed; more > 0 {
		why = append(why[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return openai.Errorf(code, "", "no decode instance takes requests: %s", strings.Join(why, "; "))
}

// unused words why an instance gets no requests. The lock is held.
func (r *Router) unused(i placement.Instance) (text string, drains bool) {
	state, problem := r.state(i)
	if i.Draining && (i.Up || problem == "") {
		return "is draining", true
	}
	if problem != "" {
		problem = ": " + withoutAddresses(problem)
	}
	cause := r.refusals[instanceKey(i.Role, i.Name)]
	switch {
	case state == StateDraining:
		return "is draining", true
	case unusable(cause):
		return "does not fit" + problem, false
	case state == StateStarting:
		return "is starting" + problem, false
	}
	if fault, ok := errors.AsType[*openai.Error](cause); ok {
		return "is not ready: " + withoutAddresses(fault.Message), false
	}
	return "does not answer" + problem, false
}
