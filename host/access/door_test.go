package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOrigins(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	ask := func(allowed []string, method, origin string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/v1/models", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if method == "OPTIONS" {
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header.Set("Access-Control-Request-Headers", "authorization, x-stainless-os")
		}
		w := httptest.NewRecorder()
		Origins(allowed, served).ServeHTTP(w, r)
		return w
	}
	const a, b = "https://a.example", "http://b.example:3000"
	for _, c := range []struct {
		allowed        []string
		method, origin string
		status         int
		allow          string
	}{
		{nil, "GET", a, 200, ""},
		{nil, "OPTIONS", a, 200, ""}, // The server answers it as it does any OPTIONS.
		{[]string{a}, "GET", "", 200, ""},
		{[]string{a}, "GET", a, 200, a},
		{[]string{a}, "GET", b, 200, ""},
		{[]string{a, b}, "OPTIONS", b, 204, b},
		{[]string{a}, "OPTIONS", b, 200, ""},
		{[]string{"*"}, "OPTIONS", b, 204, "*"},
		{[]string{a}, "GET", a + ".evil", 200, ""},
		{nil, "POST", "", 200, ""},
		{nil, "POST", "http://example.com", 200, ""}, // Its own: the host of the test's requests.
		{nil, "POST", a, 400, ""},
		{[]string{a}, "POST", a, 200, a},
		{[]string{a}, "POST", b, 400, ""},
		{[]string{"*"}, "POST", b, 200, "*"},
	} {
		w := ask(c.allowed, c.method, c.origin)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != c.status ||
			got != c.allow {
			t.Errorf("%v %s from %q: %d, allows %q", c.allowed, c.method, c.origin, w.Code, got)
		}
		if c.status == 204 && w.Header().Get("Access-Control-Allow-Headers") !=
			"authorization, x-stainless-os" {
			t.Error("the preflight does not allow the headers that were asked for")
		}
	}
}

// writeCertificate makes a certificate of its own for a name.
func writeCertificate(t *testing.T, folder, name string) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name},
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, kind string, data []byte) string {
		path := filepath.Join(folder, file)
		data = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", raw)
}

func TestCertificateIsReadAgain(t *testing.T) {
	folder, c := t.TempDir(), newClock()
	cert, secret := writeCertificate(t, folder, "first")
	store, err := OpenCertificate(cert, secret, c.now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		pair, err := store.Config().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	writeCertificate(t, folder, "second")
	touch(t, cert, 1)
	if shown() != "first" {
		t.Error("the files are read at every connection")
	}
	c.pass(2 * checkEvery)
	if shown() != "second" {
		t.Error("the changed files are not read")
	}
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	touch(t, cert, 2)
	c.pass(2 * checkEvery)
	if shown() != "second" {
		t.Error("a broken file takes the certificate away")
	}
	writeCertificate(t, folder, "third")
	touch(t, cert, 3)
	c.pass(2 * checkEvery)
	if shown() != "third" {
		t.Error("a repaired file is not read")
	}
	if _, err := OpenCertificate(cert, cert, c.now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate without its key is taken")
	}
}

// touch gives a file another time: file systems may count in seconds.
func touch(t *testing.T, file string, n int) {
	t.Helper()
	at := time.Unix(int64(1000+n), 0)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}
