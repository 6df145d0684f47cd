package access

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEvery is how often the files of a certificate are looked at, at most.
const checkEvery = time.Second

// Certificate is a certificate from two PEM files, which are read again when they change.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	state   string // of the files, when current was read
	checked time.Time
}

// OpenCertificate reads both files.
func OpenCertificate(certFile, keyFile string, now func() time.Time, log *slog.Logger) (
	*Certificate, error,
) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, now: now, log: log}
	c.state, c.checked = c.fileState(), now()
	var err error
	c.current, err = c.read()
	return c, err
}

// Config is for a listener that shows the certificate.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.get(),
				nil
		}}
}

// get returns the newest certificate that could be read. One that cannot leaves the one before in
// place and says so once.
func (c *Certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.checked) < checkEvery {
		return c.current
	}
	c.checked = now
	state := c.fileState()
	if state == c.state {
		return c.current
	}
	c.state = state
	next, err := c.read()
	if err != nil {
		c.log.Error("the changed certificate is not used; the one before stays", "error", err)
		return c.current
	}
	c.current = next
	c.log.Info("certificate read again", "cert_file", c.certFile)
	return c.current
}

// fileState changes when either file does.
func (c *Certificate) fileState() string {
	state := ""
	for _, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			state += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
		}
	}
	return state
}

func (c *Certificate) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s with its key %s: %w", c.certFile,
			c.keyFile, err)
	}
	return &pair, nil
}
