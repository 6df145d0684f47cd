package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keyTable is a [[key]] for a secret.
func keyTable(name, secret, rest string) string {
	return fmt.Sprintf("[[key]]\nname = %q\nhash = \"sha256:%x\"\n%s\n", name,
		sha256.Sum256([]byte(secret)), rest)
}

// answerOf is an answer with its body read.
type answerOf struct {
	status  int
	version int // of HTTP
	header  http.Header
	body    string
}

// code is the code of an error answer.
func (r answerOf) code() string {
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(r.body), &e) // What is no error has none.
	return e.Error.Code
}

// knock is one request.
type knock struct{ method, url, body string }

// visit makes a request; headers are NAME: VALUE.
func visit(t *testing.T, client *http.Client, k knock, headers ...string) answerOf {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), k.method, k.url,
		strings.NewReader(k.body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf{response.StatusCode, response.ProtoMajor, response.Header, string(text)}
}

const short = `{"prompt":"In the beginning","max_tokens":4,"temperature":0}`

// TestKeysAtTheDoor: every route but the probes and the page's files asks for a key; a key has its
// tenant, models and limits; a reload changes all of that.
func TestKeysAtTheDoor(t *testing.T) {
	folder := shortDir(t)
	keys := filepath.Join(folder, "keys.toml")
	writeKeys := func(text string) {
		if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeKeys(keyTable("acme", "sk-acme", "tenant = \"acme\"\nrequests_per_minute = 2") +
		keyTable("none", "sk-none", `models = ["other"]`))
	n := serveNode(t, fmt.Sprintf("[auth]\nmode = \"api_keys\"\nkeys_file = %q\n", keys))
	ask := func(method, path, body string, headers ...string) answerOf {
		return visit(t, http.DefaultClient, knock{method, n.api + path, body}, headers...)
	}
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/models"}, {"GET", "/v1/models/embedded"}, {"POST", "/v1/completions"},
		{"POST", "/v1/chat/completions"}, {"GET", "/metrics"}, {"GET", "/ui/state"},
		{"GET", "/nowhere"}, {"PUT", "/v1/models"},
	} {
		for _, key := range []string{"X: y", "Authorization: Bearer sk-wrong"} {
			r := ask(c.method, c.path, "", key)
			if r.status != 401 || r.code() != "invalid_api_key" ||
				r.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s with %s: %d %s", c.method, c.path, key, r.status, r.body)
			}
		}
	}
	for _, path := range []string{"/live", "/ready", "/health", "/ui", "/ui/page.js",
		"/ui/page.css"} {
		if r := ask("GET", path, ""); r.status != 200 {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	const acme, none = "Authorization: Bearer sk-acme", "Authorization: Bearer sk-none"
	r := ask("POST", "/v1/completions", short, none)
	if r.status != 403 || r.code() != "model_not_allowed" {
		t.Errorf("a model of others: %d %s", r.status, r.body)
	}
	for left := 1; left >= 0; left-- {
		r = ask("POST", "/v1/completions", short, acme, "X-Tenant: other")
		if r.status != 200 || r.header.Get("X-RateLimit-Remaining-Requests") != fmt.Sprint(left) {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
	}
	r = ask("POST", "/v1/completions", short, acme)
	if r.status != 429 || r.code() != "rate_limit_exceeded" || r.header.Get("Retry-After") != "30" {
		t.Errorf("beyond the limit: %d %v %s", r.status, r.header, r.body)
	}
	r = ask("GET", "/metrics", "", acme)
	if !strings.Contains(r.body, `tenant="acme"} `) || strings.Contains(r.body, `tenant="other"`) {
		t.Error("the tokens are not those of the key's tenant")
	}
	if strings.Contains(n.err.String(), "sk-acme") || !strings.Contains(n.err.String(),
		`"key":"acme"`) {
		t.Error("the log shows a secret, or not whose key it was")
	}
}

// TestKeysAreReloaded: keys come and go while the instance runs; a wrong key file changes nothing.
func TestKeysAreReloaded(t *testing.T) {
	keys := filepath.Join(shortDir(t), "keys.toml")
	writeKeys := func(text string) {
		if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const acme, none = "Authorization: Bearer sk-acme", "Authorization: Bearer sk-none"
	writeKeys(keyTable("acme", "sk-acme", "") + keyTable("none", "sk-none", ""))
	n := serveNode(t, fmt.Sprintf("[auth]\nmode = \"api_keys\"\nkeys_file = %q\n", keys))
	models := func(header string) int {
		return visit(t, http.DefaultClient, knock{"GET", n.api + "/v1/models", ""}, header).status
	}
	if models(acme) != 200 || models(none) != 200 {
		t.Fatal("the first keys do not let in")
	}
	writeKeys(keyTable("acme", "sk-acme", "requests_per_minute = 100") +
		keyTable("new", "sk-new", ""))
	reloadSays(t, n, "auth.keys", "2 keys → 2 keys", "applied 1 of 1")
	if status := models("Authorization: Bearer sk-new"); status != 200 {
		t.Errorf("a key that came: %d", status)
	}
	if status := models(none); status != 401 {
		t.Errorf("a key that went: %d", status)
	}
	writeKeys("[[key]]\nname = 5\n")
	out, errs := reloadNode(t, n)
	if !strings.Contains(errs, "keys.toml:2:8") || !strings.Contains(errs, "stays") || out != "" {
		t.Errorf("a wrong key file: %s%s", out, errs)
	}
	if status := models(acme); status != 200 {
		t.Errorf("after a refused reload: %d", status)
	}
}

// reloadNode runs `engine reload` on a node.
func reloadNode(t *testing.T, n *node) (out, errs string) {
	t.Helper()
	got := invoke(t, "", "reload", "--admin", n.admin)
	return got.out, got.err
}

func reloadSays(t *testing.T, n *node, want ...string) {
	t.Helper()
	out, errs := reloadNode(t, n)
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("reload does not say %q:\n%s%s", w, out, errs)
		}
	}
}

// TestLimitsWithoutKeys hold for each address; the tokens that were used count in the end.
func TestLimitsWithoutKeys(t *testing.T) {
	n := serveNode(t, "[limits]\ntokens_per_minute = 100\n")
	ask := func(body string) answerOf {
		return visit(t, http.DefaultClient, knock{"POST", n.api + "/v1/completions", body})
	}
	r := ask(short)
	var answer struct {
		Usage struct {
			TotalTokens int `json:"total_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || answer.Usage.TotalTokens < 5 {
		t.Fatal(r.body, err)
	}
	r = ask(strings.Replace(short, `"max_tokens":4`, `"max_tokens":99`, 1))
	if r.status != 429 || r.code() != "rate_limit_exceeded" || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	want := fmt.Sprintf("%d are left", 100-answer.Usage.TotalTokens)
	if !strings.Contains(r.body, want) { // The estimate was 4 + the prompt: it was all used.
		t.Errorf("not %q in %s", want, r.body)
	}
	n.rewrite(t, strings.Replace(readText(t, n.file), "100", "0", 1))
	reloadSays(t, n, "limits.tokens_per_minute", "100 → 0   applied")
	if r := ask(short); r.status != 200 || r.header.Get("X-RateLimit-Limit-Tokens") != "" {
		t.Errorf("without limits: %d %v", r.status, r.header)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOpenToTheNetwork: an API that anybody could use does not start by mistake, and a reload does
// not open one.
func TestOpenToTheNetwork(t *testing.T) {
	p := prepareNode(t, "[listen]\napi = \"0.0.0.0:0\"\ninternal = \"127.0.0.1:0\"\n")
	got := invoke(t, "", "serve", "-c", p.file)
	if got.code != exitConfig || !strings.Contains(got.err, "error[E307]") ||
		!strings.Contains(got.err, p.file+":3:7") {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
	folder := shortDir(t)
	keys := filepath.Join(folder, "keys.toml")
	if err := os.WriteFile(keys, []byte(keyTable("a", "sk", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	const listen = "[listen]\napi = \"0.0.0.0:0\"\ninternal = \"127.0.0.1:0\"\n"
	n := serveNode(t, listen+fmt.Sprintf("[auth]\nmode = \"api_keys\"\nkeys_file = %q\n", keys))
	n.rewrite(t, fmt.Sprintf("[listen]\nadmin = %q\napi = \"127.0.0.1:0\"\n", n.admin))
	if out, errs := reloadNode(t, n); !strings.Contains(errs, "nobody would be asked for a key") {
		t.Errorf("a reload opened the listener: %s%s", out, errs)
	}
	n.rewrite(t, fmt.Sprintf("[listen]\nadmin = %q\napi = \"0.0.0.0:0\"\n"+
		"[auth]\nopen_to_network = true\n", n.admin))
	reloadSays(t, n, "auth.mode")
	url := strings.Replace(n.api, "[::]", "127.0.0.1", 1)
	if r := visit(t, http.DefaultClient, knock{"GET", url + "/v1/models", ""}); r.status != 200 {
		t.Errorf("opened in words: %d %s", r.status, r.body)
	}
}

// selfSigned writes a certificate for 127.0.0.1 and returns it.
func selfSigned(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, DNSNames: []string{"engine.test"},
		Subject: pkix.Name{CommonName: "engine"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var cert, key bytes.Buffer
	if err := errors.Join(pem.Encode(&cert, &pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.Encode(&key, &pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
		os.WriteFile(certFile, cert.Bytes(), 0o600),
		os.WriteFile(keyFile, key.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestTLS: the API speaks TLS alone, streams over both HTTP versions, and shows a new certificate
// without a restart; a wrong one is refused at its place.
func TestTLS(t *testing.T) {
	folder := shortDir(t)
	certFile, keyFile := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	first := selfSigned(t, certFile, keyFile)
	text := fmt.Sprintf("[api.tls]\ncert_file = %q\nkey_file = %q\n", certFile, keyFile)
	n := serveNode(t, "[listen]\napi = \"127.0.0.1:0\"\ninternal = \"127.0.0.1:0\"\n"+text)
	if !strings.HasPrefix(n.api, "https://") {
		t.Fatalf("it listens on %s", n.api)
	}
	client := func(trusted *x509.Certificate, version int) *http.Client {
		roots := x509.NewCertPool()
		roots.AddCert(trusted)
		return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: version == 2,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "engine.test"}}}
	}
	body := strings.Replace(short, "{", `{"stream":true,`, 1)
	for _, version := range []int{1, 2} {
		r := visit(t, client(first, version), knock{"POST", n.api + "/v1/completions", body})
		if r.status != 200 || r.version != version || !strings.HasSuffix(r.body, "[DONE]\n\n") {
			t.Errorf("a stream over TLS by HTTP/%d: %d %s", r.version, r.status, r.body)
		}
	}
	url := strings.Replace(n.api, "https", "http", 1) + "/live"
	plain := visit(t, http.DefaultClient, knock{"GET", url, ""})
	if plain.status != 400 {
		t.Errorf("plain HTTP: %d", plain.status)
	}
	second := selfSigned(t, certFile, keyFile)
	eventually(t, patience, func() error {
		response, err := client(second, 1).Get(n.api + "/live")
		if err == nil {
			response.Body.Close()
		}
		return err
	})
	if err := os.WriteFile(keyFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"serve", "-c", n.file}, {"config", "check", "-c", n.file}} {
		got := invoke(t, "", command...)
		if got.code != exitConfig || !strings.Contains(got.err, "error[E421]") ||
			!strings.Contains(got.err, n.file) {
			t.Errorf("%v: exit %d\n%s", command, got.code, got.err)
		}
	}
}

// TestOriginsAtTheDoor: a page of an allowed origin may ask before it has a key.
func TestOriginsAtTheDoor(t *testing.T) {
	n := serveNode(t, "[api.cors]\nallow_origins = [\"https://app.example\"]\n")
	url := n.api + "/v1/chat/completions"
	r := visit(t, http.DefaultClient, knock{"OPTIONS", url, ""}, "Origin: https://app.example",
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
	if r.status != 204 || r.header.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("preflight: %d %v", r.status, r.header)
	}
	r = visit(t, http.DefaultClient, knock{"GET", n.api + "/v1/models", ""},
		"Origin: https://evil.example")
	if r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: %d %v", r.status, r.header)
	}
	r = visit(t, http.DefaultClient, knock{"POST", n.api + "/v1/completions", short},
		"Origin: https://evil.example", "Content-Type: text/plain")
	if r.status != 400 || !strings.Contains(r.body, "api.cors.allow_origins") {
		t.Errorf("a page of another origin makes the engine work: %d %s", r.status, r.body)
	}
}
