package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of the network.
const (
	dialLimit    = 15 * time.Second
	headerLimit  = 60 * time.Second
	stallLimit   = 60 * time.Second // nothing comes for so long: the connection is given up
	maxRedirects = 8
	maxTries     = 5   // in a row that brought nothing
	maxRestarts  = 200 // of one file, whatever they brought
	firstWait    = time.Second
	longestWait  = 2 * time.Minute // a hub that asks for more is asked again by the user
)

// newHTTP returns a client that follows no redirect: which may be followed, and with which headers,
// is decided in ask.
func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: dialLimit}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			TLSHandshakeTimeout: dialLimit, ResponseHeaderTimeout: headerLimit,
			ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: headerLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// query is one request to the hub.
type query struct {
	method, url string
	// from is the first byte that is wanted; 0 is the whole body.
	from int64
	// stay keeps a redirect to another origin as the answer.
	stay bool
}

// ask makes a request and follows its redirects. The token goes to the endpoint's origin only:
// the hub hands large files out by signed addresses elsewhere, which need no token and must not
// learn it. The answer's status is 2xx, or 3xx with stay; everything else is an error.
func (c *Client) ask(ctx context.Context, q query) (*http.Response, error) {
	home, err := url.Parse(c.settings.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("the hub's address: %w", err)
	}
	at, err := url.Parse(q.url)
	if err != nil {
		return nil, fmt.Errorf("the address of a file: %w", err)
	}
	for range maxRedirects {
		response, err := c.once(ctx, q, at, sameOrigin(at, home))
		if err != nil {
			return nil, err
		}
		if response.StatusCode/100 != 3 {
			return c.judge(response, at, sameOrigin(at, home))
		}
		next, err := response.Location()
		if err == nil && (next.Scheme != "https" && next.Scheme != "http" || next.User != nil) {
			err = errors.New("it leads to no web address")
		}
		if err == nil && at.Scheme == "https" && next.Scheme == "http" {
			err = errors.New("it leads from https to http")
		}
		if err == nil && q.stay && !sameOrigin(next, home) {
			return response, nil
		}
		response.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("a redirect of %s is refused: %w", at.Host, err)
		}
		at = next
	}
	return nil, fmt.Errorf("%s answers with more than %d redirects", home.Host, maxRedirects)
}

// once makes one request without following anything.
func (c *Client) once(ctx context.Context, q query, at *url.URL, known bool) (*http.Response,
	error) {
	request, err := http.NewRequestWithContext(ctx, q.method, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", at.Host, err)
	}
	request.Header.Set("User-Agent", c.userAgent)
	request.Header.Set("Accept-Encoding", "identity") // Sizes and ranges are those of the file.
	if known && c.settings.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.settings.Token)
	}
	if q.from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", q.from))
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, networkError(ctx, at.Host, err)
	}
	return response, nil
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) &&
		portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

// passing is a failure that may be gone the next time; after is how long the hub asks to wait.
type passing struct {
	err   error
	after time.Duration
}

func (p *passing) Error() string { return p.err.Error() }
func (p *passing) Unwrap() error { return p.err }

// networkError words what the HTTP client says, without the address: signed ones are secrets.
func networkError(ctx context.Context, host string, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStalled) {
		return ctx.Err()
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	err = fmt.Errorf("ask %s: %w", host, err)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return fmt.Errorf("%w; is the network there, and HF_ENDPOINT right?", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return err
	}
	return &passing{err: err}
}

// errStalled is the cause of a request that was given up because nothing came.
var errStalled = errors.New("nothing came any more")

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 1<<30)) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// persist tries until it works, fails for good, or has tried often enough. try reports whether it
// got further than the one before.
func (c *Client) persist(ctx context.Context, say func(string), try func() (bool, error)) error {
	failed := 0
	for n := 1; ; n++ {
		moved, err := try()
		p, ok := errors.AsType[*passing](err)
		if !ok {
			return err
		}
		failed++
		if moved {
			failed = 1
		}
		wait := max(firstWait<<(failed-1), p.after)
		switch {
		case failed >= maxTries || n >= maxRestarts:
			return fmt.Errorf("%w (%d tries): %w", p.err, n, ErrTemporary)
		case wait > longestWait:
			return fmt.Errorf("%w, and asks to wait %v: %w", p.err, wait.Round(time.Second),
				ErrTemporary)
		}
		say(fmt.Sprintf("%v; again in %v", p.err, wait.Round(time.Second)))
		if err := c.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
