package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// defaultEndpoint is the hub when the environment names none.
const defaultEndpoint = "https://huggingface.co"

// Settings say which hub, as whom, and where models are kept.
type Settings struct {
	Endpoint string // such as https://huggingface.co, without a slash at the end
	// Token is sent to the endpoint; "" is nobody's. TokenFrom says in words where it came from.
	Token, TokenFrom string
	Cache            string // folder
	// Offline is set where the user forbids every request.
	Offline bool
}

// FromEnvironment reads the variables that the hub's own client reads: HF_ENDPOINT, HF_TOKEN,
// HF_TOKEN_PATH, HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE, their older names, and XDG_CACHE_HOME. home
// is the user's folder, "" if there is none.
func FromEnvironment(getenv func(string) string, home string) (Settings, error) {
	e := environment{getenv, home}
	hf := e.path("HF_HOME")
	if hf == "" {
		base := e.path("XDG_CACHE_HOME")
		if base == "" && home != "" {
			base = filepath.Join(home, ".cache")
		}
		if base != "" {
			hf = filepath.Join(base, "huggingface")
		}
	}
	s := Settings{Cache: e.path("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
		Offline: e.isSet("HF_HUB_OFFLINE") || e.isSet("TRANSFORMERS_OFFLINE")}
	if s.Cache == "" && hf == "" {
		return s, errors.New("no home folder: set $HF_HOME to where models are kept")
	}
	if s.Cache == "" {
		s.Cache = filepath.Join(hf, "hub")
	}
	var err error
	if s.Cache, err = filepath.Abs(s.Cache); err != nil {
		return s, fmt.Errorf("find the hub's cache: %w", err)
	}
	if s.Endpoint, err = e.endpoint(); err != nil {
		return s, err
	}
	s.Token, s.TokenFrom, err = e.token(hf)
	return s, err
}

// environment is what the user has set.
type environment struct {
	getenv func(string) string
	home   string
}

// path is the first variable that is set, with ~ and $NAME in it replaced.
func (e environment) path(names ...string) string {
	for _, name := range names {
		path := e.getenv(name)
		if path == "" {
			continue
		}
		if path == "~" || strings.HasPrefix(path, "~/") {
			path = e.home + path[1:]
		}
		return os.Expand(path, e.getenv)
	}
	return ""
}

// isSet reads a switch as the client does.
func (e environment) isSet(name string) bool {
	switch strings.ToUpper(e.getenv(name)) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

func (e environment) endpoint() (string, error) {
	text := e.getenv("HF_ENDPOINT")
	if text == "" {
		return defaultEndpoint, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("HF_ENDPOINT is not an address such as %s", defaultEndpoint)
	}
	return strings.TrimRight(text, "/"), nil
}

// token is the user's, and where it came from: the environment before the client's file.
func (e environment) token(hf string) (token, from string, err error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if token = strings.TrimSpace(e.getenv(name)); token != "" {
			return token, name, checkToken(token, name)
		}
	}
	path := e.path("HF_TOKEN_PATH")
	if path == "" && hf != "" {
		path = filepath.Join(hf, "token")
	}
	if path == "" || e.isSet("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		return "", "", nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read the hub's token: %w", err)
	}
	defer f.Close()
	const most = 4 << 10
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return "", "", fmt.Errorf("read the hub's token: %w", err)
	}
	if token = strings.TrimSpace(string(data)); token == "" {
		return "", "", nil
	}
	return token, path, checkToken(token, path)
}

// checkToken refuses what no header can hold, without showing it.
func checkToken(token, from string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("the token of %s holds a character that no token has", from)
		}
	}
	return nil
}
