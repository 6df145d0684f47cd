package api

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/host/openai"
)

// Listen makes errors of ours of those that the HTTP server answers as plain text, before there is
// a request: headers without end, and what is no HTTP. It works on the bytes of a connection, so
// behind TLS it changes nothing.
func (s *Server) Listen(l net.Listener) net.Listener { return &translating{l, s} }

type translating struct {
	net.Listener
	server *Server
}

func (l *translating) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &translated{conn, l.server}, nil
}

// translated is a connection whose plain errors are replaced.
type translated struct {
	net.Conn
	server *Server
}

// plainHeaders is what the HTTP server writes between the status and the text of an error that it
// answers by itself, all in one write. No answer of ours has these headers alone.
const plainHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// Write replaces a plain error; all else passes.
func (c *translated) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(p, []byte("HTTP/1.1 ")) {
		return c.Conn.Write(p)
	}
	status, text, found := strings.Cut(string(p[:min(len(p), 512)]), plainHeaders)
	if !found || strings.Contains(status, "\r") {
		return c.Conn.Write(p)
	}
	fault := c.server.unread(status, text)
	c.server.options.Watch.Answered("unread", fault.Status())
	c.server.options.Watch.Rejected(string(fault.Code))
	if _, err := c.Conn.Write(rawError(fault)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unread words the HTTP server's own error.
func (s *Server) unread(status, text string) *openai.Error {
	if strings.HasPrefix(status, "HTTP/1.1 431 ") {
		return openai.Errorf(openai.CodeHeadersTooLarge, "", "the headers have more bytes than "+
			"the limit of %d (api.max_header)", s.options.MaxHeader)
	}
	_, why, known := strings.Cut(text, ": ")
	if !known {
		why = "it is malformed or did not arrive in time"
	}
	return openai.Errorf(openai.CodeInvalidValue, "", "this HTTP request cannot be read: %s", why)
}

// rawError is an error's answer as bytes, after which the connection is closed.
func rawError(e *openai.Error) []byte {
	w := &plain{header: http.Header{}}
	openai.WriteError(w, e)
	w.header.Set("Connection", "close")
	w.header.Set("Content-Length", strconv.Itoa(w.body.Len()))
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 " + strconv.Itoa(w.code) + " " + http.StatusText(w.code) + "\r\n")
	_ = w.header.Write(&b) // A buffer takes everything.
	b.WriteString("\r\n")
	b.Write(w.body.Bytes())
	return b.Bytes()
}

// plain keeps an answer.
type plain struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (w *plain) Header() http.Header         { return w.header }
func (w *plain) WriteHeader(code int)        { w.code = code }
func (w *plain) Write(p []byte) (int, error) { return w.body.Write(p) }

// CloseWrite is what an HTTP server closes by, so that its last answer is read.
func (c *translated) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// ReadFrom lets files pass without a copy where the system can.
func (c *translated) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }
