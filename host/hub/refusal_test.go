package hub

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// TestRefusalsSayWhatToDo: each answer of the hub is one error that names the way on.
func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		status        int
		code, message string
		token         string
		only          string // path that is refused; "" is all
		want          []string
	}{
		{401, "RepoNotFound", "Invalid username or password.", "", "",
			[]string{"does not exist, or it is private", "set HF_TOKEN", "401"}},
		{401, "", "Invalid credentials in Authorization header", "t", "",
			[]string{"the token in HF_TOKEN is not valid", "Invalid credentials"}},
		{401, "GatedRepo", "Access to model acme/tiny is restricted.", "", "",
			[]string{"its owner asks for consent", "/acme/tiny", "set HF_TOKEN"}},
		{403, "GatedRepo", "Your request is awaiting a review.", "t", "",
			[]string{"may not read it", "/acme/tiny", "awaiting a review"}},
		{404, "RepoNotFound", "Repository not found", "t", "",
			[]string{"there is no such model", "/acme/tiny"}},
		{404, "RevisionNotFound", "Invalid rev id: main", "", "",
			[]string{`no branch, tag or commit "main"`}},
		{404, "EntryNotFound", "Entry not found", "", "/acme/tiny/resolve/" + testCommit +
			"/tokenizer.json", []string{"acme/tiny, tokenizer.json", "no such file"}},
		{403, "", "", "", "/acme/tiny/resolve/" + testCommit + "/config.json",
			[]string{"acme/tiny, config.json", "private"}},
		{418, "", "short\tand stout", "", "", []string{"418", "short and stout"}},
	} {
		h := newFakeHub(t)
		h.broken = func(w http.ResponseWriter, r *http.Request) bool {
			if c.only != "" && r.URL.Path != c.only {
				return false
			}
			refuse(w, c.status, c.code, c.message)
			return true
		}
		h.token = c.token
		cache := t.TempDir()
		_, err := h.client(t, cache).Pull(t.Context(), tinyRef, "", &heard{})
		if err == nil || errors.Is(err, ErrTemporary) {
			t.Errorf("%d %s: %v", c.status, c.code, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%d %s: %v\nlacks %q", c.status, c.code, err, want)
			}
		}
		if _, err := (Cache{cache}).Find(tinyRef); !errors.Is(err, ErrNotCached) {
			t.Errorf("found all the same: %v", err)
		}
	}
}

// TestTheTokenStaysAtHome follows redirects: to the hub's own pages with the token, elsewhere
// without, and from https to http not at all.
func TestTheTokenStaysAtHome(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	h.token = "hf_secret"
	h.broken = func(w http.ResponseWriter, r *http.Request) bool {
		// The model was called otherwise once.
		if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/old/name/"); ok {
			w.Header().Set("Location", "/api/models/acme/tiny/"+rest+"?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, "/old/name/"); ok {
			w.Header().Set("Location", "/acme/tiny/"+rest)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	s, err := h.client(t, cache).Pull(t.Context(), Ref{Org: "old", Name: "name"}, "", &heard{})
	if err != nil {
		t.Fatal(err)
	}
	h.checkWhole(t, cache, s)

	for where, want := range map[string]string{
		"http://127.0.0.1:1/x": "from https to http", "ftp://x/y": "no web address",
		"https://a:b@x/y": "no web address", "": "a redirect of", "/again": "more than 8 redirects",
	} {
		secure := httptest.NewTLSServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if where != "" {
					w.Header().Set("Location", where)
				}
				w.WriteHeader(http.StatusFound)
			}))
		c := h.client(t, t.TempDir())
		c.settings.Endpoint = secure.URL
		c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
			RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		_, err := c.Pull(t.Context(), tinyRef, "", &heard{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", where, err, want)
		}
		if c.http.Transport.(*http.Transport).TLSClientConfig = nil; where == "" {
			_, err := c.Pull(t.Context(), tinyRef, "", &heard{})
			if err == nil || errors.Is(err, ErrTemporary) {
				t.Errorf("a certificate that nobody knows: %v", err)
			}
		}
		secure.Close()
	}
}

// TestSignedAddressesThatRunOut are asked for anew, and never shown.
func TestSignedAddressesThatRunOut(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	refused := 0
	h.broken = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/"+h.hashOf("model.safetensors") || refused == 2 {
			return false
		}
		refused++
		refuse(w, http.StatusForbidden, "", "Request has expired")
		return true
	}
	s, w := pullTiny(t, h.client(t, cache))
	h.checkWhole(t, cache, s)
	if said := strings.Join(w.said, "\n"); strings.Contains(said, "secret") ||
		!strings.Contains(said, "403 Forbidden (Request has expired); again in 1s") {
		t.Error(said)
	}
	if n := h.count("GET /acme/tiny/resolve/" + testCommit + "/model.safetensors"); n != 3 {
		t.Errorf("the hub was asked %d times", n)
	}
	h.store.Close()
	_, err := h.client(t, t.TempDir()).Pull(t.Context(), tinyRef, "", &heard{})
	if !errors.Is(err, ErrTemporary) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestNotAHub(t *testing.T) {
	for body, want := range map[string]string{
		"<html>":                          "does not answer as a hub does",
		`{"sha":"../../x"}`:               "names no commit",
		`{"siblings":[]}`:                 "names no commit",
		`{"sha":"` + testCommit + `"}`:    "has no model.safetensors",
		`{"sha":` + strconv.Itoa(7) + `}`: "does not answer as a hub does",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, body)
		}))
		c := newFakeHub(t).client(t, t.TempDir())
		c.settings.Endpoint = s.URL
		_, err := c.Pull(t.Context(), tinyRef, "", &heard{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
		s.Close()
	}
}
