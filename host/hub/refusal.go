package hub

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// judge lets a success pass and turns every other answer into one clear error. known says whether
// the answer is the hub's own, and not that of a place it redirected to.
func (c *Client) judge(r *http.Response, at *url.URL, known bool) (*http.Response, error) {
	if r.StatusCode/100 == 2 {
		return r, nil
	}
	defer r.Body.Close()
	const most = 4 << 10
	_, _ = io.CopyN(io.Discard, r.Body, most) // A short rest lets the connection be used again.
	status := fmt.Errorf("%s answers %d %s%s", at.Host, r.StatusCode,
		http.StatusText(r.StatusCode), words(r.Header))
	switch code := r.StatusCode; {
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500:
		return nil, &passing{err: status, after: retryAfter(r.Header)}
	case code == http.StatusRequestedRangeNotSatisfiable:
		return nil, errRange
	case !known:
		// A signed address that has run out: the next one comes from the hub.
		return nil, &passing{err: status}
	}
	return nil, &refusal{status: r.StatusCode, code: r.Header.Get("X-Error-Code"), err: status}
}

// errRange says that the hub has no such range: what is here is longer than the file.
var errRange = &passing{err: fmt.Errorf("the hub does not have the range that was asked for")}

// words are the hub's own, cleaned and bounded.
func words(h http.Header) string {
	const most = 300
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, h.Get("X-Error-Message"))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (%.*s)", most, text)
}

// refusal is an answer that trying again does not change.
type refusal struct {
	status int
	code   string // X-Error-Code
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

// explain says what a refusal means for the user, and what to do.
func (c *Client) explain(r *refusal, ref Ref, file string) error {
	page := c.settings.Endpoint + "/" + ref.Model()
	what := ref.String()
	if file != "" {
		what += ", " + file
	}
	switch {
	case r.code == "GatedRepo" || r.status == http.StatusForbidden && c.settings.Token != "":
		if c.settings.Token == "" {
			return fmt.Errorf("%s: %w: its owner asks for consent; give it at %s, and set "+
				"HF_TOKEN to a token of that account", what, r, page)
		}
		return fmt.Errorf("%s: %w: the account of the token in %s may not read it; ask for "+
			"access at %s", what, r, c.settings.TokenFrom, page)
	case r.code == "RevisionNotFound":
		return fmt.Errorf("%s: %w: the model has no branch, tag or commit %q; see %s/tree/main",
			what, r, ref.revision(), page)
	case r.code == "EntryNotFound":
		return fmt.Errorf("%s: %w: the model has no such file; see %s/tree/main", what, r, page)
	case r.status == http.StatusNotFound:
		return fmt.Errorf("%s: %w: there is no such model, or no such revision; see %s", what, r,
			page)
	case r.status == http.StatusUnauthorized && c.settings.Token != "":
		return fmt.Errorf("%s: %w: the model does not exist, or the token in %s is not valid "+
			"or may not read it", what, r, c.settings.TokenFrom)
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
		return fmt.Errorf("%s: %w: the model does not exist, or it is private; to read a "+
			"private one set HF_TOKEN to a token that may", what, r)
	}
	return fmt.Errorf("%s: %w", what, r)
}
