package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// form is a shape that a text must have.
type form struct {
	what  string                // "a host:port"
	check func(s string) string // what to write instead; "" when s is of the form
}

// The forms of the file.
var (
	nameForm      = &form{"a name", checkName}
	listenForm    = &form{"an address to listen on", checkListen}
	hostPortForm  = &form{"a host:port", checkHostPort}
	peerForm      = &form{"a network or a host name", checkPeer}
	urlForm       = &form{"the URL of an instance", checkURL}
	collectorForm = &form{"the URL of a collector", checkCollector}
	digestForm    = &form{"a SHA-256 digest", checkDigest}
	originForm    = &form{"the origin of web pages", checkOrigin}
)

// nameMax bounds names: they label metrics and name sockets and files.
const nameMax = 64

func checkName(s string) string {
	if s == "" || len(s) > nameMax || strings.TrimFunc(s, isNameRune) != "" {
		return "write 1 to 64 letters, digits, hyphens and underscores"
	}
	for _, r := range s {
		if !isNameRune(r) {
			return "write letters, digits, hyphens and underscores only"
		}
	}
	return ""
}

func isNameRune(r rune) bool {
	return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
		r >= 'A' && r <= 'Z'
}

func checkListen(s string) string {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return `write "unix:PATH"`
		}
		return ""
	}
	return checkHostPort(s)
}

// checkHostPort takes "" too: an address that is not opened.
func checkHostPort(s string) string {
	if s == "" {
		return ""
	}
	host, port, ok := splitHostPort(s)
	if !ok {
		if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65536 {
			return `write "127.0.0.1:` + s + `"`
		}
		return `write host:port, such as "127.0.0.1:8080"`
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "the port is a number from 0 to 65535"
	}
	if host != "" && !isHost(host) {
		return "the host is an IP address or a name"
	}
	return ""
}

// splitHostPort splits at the last colon; an IPv6 address stands in brackets. It opens nothing and
// asks no resolver.
func splitHostPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = s[:i], s[i+1:]
	if inner, found := strings.CutPrefix(host, "["); found {
		host, found = strings.CutSuffix(inner, "]")
		return host, port, found
	}
	return host, port, !strings.Contains(host, ":")
}

// isHost says whether s is an IP address or a DNS name.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || strings.TrimFunc(label, isNameRune) != "" {
			return false
		}
	}
	return strings.Trim(s, "0123456789.") != "" // Digits and dots alone are a mistaken address.
}

// isLoopback says whether a host is reachable from this machine only.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func checkPeer(s string) string {
	if strings.Contains(s, "/") {
		if _, err := netip.ParsePrefix(s); err != nil {
			return `write a network such as "10.0.0.0/24"`
		}
		return ""
	}
	if s == "*" {
		return `write "0.0.0.0/0" and "::/0" to dial anything`
	}
	if !isHost(s) {
		return `write a network such as "10.0.0.0/24", or a host name without a port`
	}
	return ""
}

func checkURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" || u.Host == "":
		return `write "http://HOST:PORT", its listen.internal`
	case u.Port() == "" || !isHost(u.Hostname()):
		return `write host and port: "http://HOST:PORT"`
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return `leave out what follows the port: "http://` + u.Host + `"`
	}
	return ""
}

// checkCollector takes "" too: no collector.
func checkCollector(s string) string {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return ""
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.RawQuery != "" || u.Fragment != "":
		return `write "http://HOST:PORT", or with a path that is not /v1/traces`
	}
	return ""
}

func checkDigest(s string) string {
	if s == "" || len(s) == 64 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == "" {
		return ""
	}
	return "write the 64 hex digits that `sha256sum FILE` prints"
}

// checkOrigin takes what browsers send as Origin: scheme, host and, unless it is the scheme's own,
// the port.
func checkOrigin(s string) string {
	if s == "*" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme == "" || u.Host == "" || u.User != nil:
		return `write "https://HOST" or "http://HOST:PORT", or "*" for any`
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return `leave out what follows the host: "` + u.Scheme + "://" + u.Host + `"`
	}
	return ""
}

// CheckInstance says what is wrong with the name or the URL of an instance that joins a router
// while it runs; nil when nothing is.
func CheckInstance(name, url string) error {
	if remedy := checkName(name); remedy != "" {
		return fmt.Errorf("the name of an instance is %.80q: %s", name, remedy)
	}
	if remedy := checkURL(url); remedy != "" {
		return fmt.Errorf("the URL of %s is %.200q: %s", name, url, remedy)
	}
	return nil
}
