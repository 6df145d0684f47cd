package router

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/openai"
)

// fakeInstance answers the calls of a router as told, and remembers them.
type fakeInstance struct {
	who    openai.Instance
	files  fs.FS
	server *httptest.Server

	mu     sync.Mutex
	calls  []string
	bodies map[string]openai.Call
	fail   map[string]*openai.Error // by path: the answer
	block  map[string]bool          // by path: wait until the caller has gone
	gone   chan string              // paths whose caller went
	ready  *openai.Error            // what /ready answers; nil: it is
	// undelivered: start_generate refuses, and names the request, as where nothing came.
	undelivered bool
	cut         int           // the next stream breaks before this token; 0: does not
	slow        chan struct{} // remote_send waits for it
	asked       chan struct{} // a /live was answered while remote_send waits
}

// tokens are what a fake decode instance generates.
var tokens = []int32{7, 8, 9}

func newInstance(t *testing.T, name, compat string) *fakeInstance {
	t.Helper()
	f := &fakeInstance{
		who: openai.Instance{Name: name, Role: "all", Models: []string{"fake"}, Context: 100,
			Compat: compat,
			Parts:  map[string]string{"page_size": compat}},
		files: tinyTokenizer(t), bodies: map[string]openai.Call{},
		fail: map[string]*openai.Error{}, block: map[string]bool{}, gone: make(chan string, 8),
		asked: make(chan struct{}),
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// tinyTokenizer is the folder of the smallest tokenizer there is.
func tinyTokenizer(t *testing.T) fs.FS {
	t.Helper()
	folder := t.TempDir()
	text := `{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"added_tokens":[],` +
		`"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null}`
	if err := os.WriteFile(path.Join(folder, "tokenizer.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return os.DirFS(folder)
}

func (f *fakeInstance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	blocked, slow, ready := f.block[r.URL.Path], f.slow, f.ready
	f.mu.Unlock()
	if r.Method == http.MethodGet && blocked {
		<-r.Context().Done()
		return
	}
	if slow != nil && r.URL.Path == openai.PathRemoteSend {
		<-slow
	}
	if slow != nil && r.URL.Path == "/live" {
		select {
		case f.asked <- struct{}{}:
		case <-slow:
		}
	}
	if r.Method == http.MethodPost {
		var call openai.Call
		_ = json.Unmarshal(body, &call)
		f.mu.Lock()
		f.calls = append(f.calls, path.Base(r.URL.Path))
		f.bodies[path.Base(r.URL.Path)] = call
		fail, block := f.fail[r.URL.Path], f.block[r.URL.Path]
		f.mu.Unlock()
		if block {
			<-r.Context().Done()
			f.gone <- path.Base(r.URL.Path)
			return
		}
		if fail != nil {
			openai.WriteError(w, fail)
			return
		}
	}
	switch {
	case r.URL.Path == "/ready" && ready != nil:
		openai.WriteError(w, ready)
	case r.URL.Path == "/ready":
		fmt.Fprint(w, `{}`)
	case r.URL.Path == openai.PathInstance:
		_ = json.NewEncoder(w).Encode(f.who)
	case strings.HasPrefix(r.URL.Path, openai.PathFiles):
		f.file(w, path.Base(r.URL.Path))
	case r.URL.Path == openai.PathPrepareReceive:
		fmt.Fprint(w, `{"kv_append_metadata":"m","prefix_matched_length":1}`)
	case r.URL.Path == openai.PathRemoteSend:
		fmt.Fprint(w, `{"status":"ok","sent_tokens":2}`)
	case r.URL.Path == openai.PathStartGenerate:
		f.mu.Lock()
		call, cut, undelivered := f.bodies[path.Base(r.URL.Path)], f.cut, f.undelivered
		f.cut = 0
		f.mu.Unlock()
		if undelivered {
			openai.WriteError(w, openai.Errorf(openai.CodeNotDelivered, "",
				"positions [1, 3) of %q have not been delivered", call.User))
			return
		}
		generate(w, call.Emitted, cut)
	case r.URL.Path == openai.PathRelease:
		fmt.Fprint(w, `{}`)
	}
}

func (f *fakeInstance) file(w http.ResponseWriter, name string) {
	data, err := fs.ReadFile(f.files, name)
	if err != nil {
		openai.WriteError(w, openai.Errorf(openai.CodeUnknownURL, "", "no %s", name))
		return
	}
	_, _ = w.Write(data)
}

// generate streams the tokens behind those that were emitted, their finish and the usage. With a
// cut above 0 the connection breaks before that many tokens.
func generate(w http.ResponseWriter, emitted, cut int) {
	events := openai.NewEventWriter(w, 0)
	stop := "length"
	for i, id := range tokens[emitted:] {
		if cut > 0 && emitted+i >= cut {
			panic(http.ErrAbortHandler)
		}
		_ = events.Send(openai.CompletionResponse{Choices: []openai.CompletionChoice{
			{Text: "x", TokenIDs: []int32{id}}}})
	}
	if cut > len(tokens) {
		panic(http.ErrAbortHandler)
	}
	_ = events.Send(openai.CompletionResponse{Choices: []openai.CompletionChoice{
		{FinishReason: &stop}}})
	used := openai.NewUsage(4, 3, 2)
	_ = events.Send(openai.CompletionResponse{Choices: []openai.CompletionChoice{},
		Usage: openai.ShowUsage(&used)})
	_ = events.Done()
}

// seen lists the calls so far.
func (f *fakeInstance) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, " ")
}

func (f *fakeInstance) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fleet is a router that has met its instances.
func fleet(t *testing.T, prefill, decode []*fakeInstance) *Router {
	t.Helper()
	r := unmet(t, prefill, decode)
	r.checkAll(t.Context())
	return r
}

// unmet is a router that has asked none of its instances yet.
func unmet(t *testing.T, prefill, decode []*fakeInstance) *Router {
	t.Helper()
	endpoints := func(list []*fakeInstance) (out []Endpoint) {
		for _, f := range list {
			out = append(out, Endpoint{Name: f.who.Name, URL: f.server.URL})
		}
		return out
	}
	r, err := New(Options{Prefill: endpoints(prefill), Decode: endpoints(decode), Retries: 1,
		ConnectTimeout: 5 * time.Second, HealthInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
