package hub

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// cutter ends connections after random counts of bytes: some before the headers, some inside a
// file.
type cutter struct {
	h      *fakeHub
	mu     sync.Mutex
	random *rand.Rand
	cuts   int
	ranged int
}

func (c *cutter) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *cutter) broken(w http.ResponseWriter, r *http.Request) bool {
	c.mu.Lock()
	if r.Header.Get("Range") != "" {
		c.ranged++
	}
	c.mu.Unlock()
	if c.draw(6) == 0 {
		return false
	}
	c.mu.Lock()
	c.cuts++
	c.mu.Unlock()
	if c.draw(2) == 0 || !strings.HasPrefix(r.URL.Path, "/acme/tiny/resolve/") &&
		r.Host == c.h.hub.Listener.Addr().String() {
		hijack(w).Close()
		return true
	}
	inner := httptest.NewRecorder()
	c.answer(inner, r)
	whole := inner.Body.Bytes()
	for name, values := range inner.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(inner.Code)
	if len(whole) > 0 {
		_, _ = w.Write(whole[:c.draw(len(whole))])
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

// answer is what would have come without the cut.
func (c *cutter) answer(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/acme/tiny/resolve/"); ok {
		c.h.serveFile(w, r, path)
		return
	}
	for name, data := range c.h.files {
		if "/"+sha256Of(data) == r.URL.Path && large(name) {
			c.h.serveBytes(w, r, data)
		}
	}
}

// TestPullOverCutConnections ends five of six connections somewhere. Pulls that give up leave
// what they have; the next goes on from it, and no byte that is here is asked for again.
func TestPullOverCutConnections(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h, cache := newFakeHub(t), t.TempDir()
	h.shard()
	c := &cutter{h: h, random: rand.New(rand.NewPCG(seed, 1))}
	h.broken = c.broken
	var s Snapshot
	pulls := 0
	for {
		var err error
		pulls++
		if s, err = h.client(t, cache).Pull(t.Context(), tinyRef, "", &heard{}); err == nil {
			break
		}
		if !errors.Is(err, ErrTemporary) || pulls > 500 {
			t.Fatalf("pull %d: %v", pulls, err)
		}
		if found, err := (Cache{cache}).Find(tinyRef); err == nil {
			t.Fatalf("found before it was whole: %+v", found)
		}
	}
	h.checkWhole(t, cache, s)
	if c.ranged == 0 || c.cuts == 0 {
		t.Errorf("%d cuts, %d ranges in %d pulls", c.cuts, c.ranged, pulls)
	}
	t.Logf("%d pulls, %d connections cut, %d requests for a rest", pulls, c.cuts, c.ranged)
}

// beginning leaves the first bytes of the weights as an earlier pull would have.
func (h *fakeHub) beginning(t *testing.T, cache string, data []byte) {
	t.Helper()
	folder := filepath.Join(cache, "models--acme--tiny", blobsName)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, h.hashOf("model.safetensors")+incomplete)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *fakeHub) weightsServed() int { return h.bytesOf("/" + h.hashOf("model.safetensors")) }

// TestPullGoesOnFromWhatIsHere, whoever left it: a true beginning is kept, anything else is not.
func TestPullGoesOnFromWhatIsHere(t *testing.T) {
	all := noise(1, 700_000)
	damaged := slices.Clone(all[:500_000])
	damaged[77] ^= 1
	for _, c := range []struct {
		name   string
		here   []byte
		ranges bool // the server knows ranges
		served int
	}{
		{"a beginning", all[:500_000], true, 200_000},
		{"all of it", all, true, 0},
		{"a beginning, no ranges", all[:500_000], false, 700_000},
		{"damaged", damaged, true, 200_000 + 700_000},
		{"all of it, damaged", append(slices.Clone(damaged), all[500_000:]...), true, 700_000},
		{"too long", append(slices.Clone(all), 1), true, 700_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, cache := newFakeHub(t), t.TempDir()
			h.beginning(t, cache, c.here)
			h.broken = func(_ http.ResponseWriter, r *http.Request) bool {
				if !c.ranges {
					r.Header.Del("Range")
				}
				return false
			}
			s, _ := pullTiny(t, h.client(t, cache))
			h.checkWhole(t, cache, s)
			if got := h.weightsServed(); got != c.served {
				t.Errorf("%d bytes went over the wire, want %d", got, c.served)
			}
		})
	}
}

// TestPullOfWrongBytes: what the hash does not confirm gets no name under which it could load.
func TestPullOfWrongBytes(t *testing.T) {
	right := noise(1, 700_000)
	for name, wrong := range map[string][]byte{
		"another": noise(99, 700_000), "longer": append(slices.Clone(right), 0),
		"shorter": right[:699_999],
	} {
		h, cache := newFakeHub(t), t.TempDir()
		h.broken = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/"+h.hashOf("model.safetensors") {
				return false
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(wrong))
			return true
		}
		_, err := h.client(t, cache).Pull(t.Context(), tinyRef, "", &heard{})
		want := "thrown away"
		if name == "shorter" {
			want = "the range that was asked for" // It looks like a cut, until there is no more.
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := (Cache{cache}).Find(tinyRef); !errors.Is(err, ErrNotCached) {
			t.Errorf("%s: found all the same: %v", name, err)
		}
		for file, path := range filesBelow(t, cache) {
			if info, err := os.Stat(path); err == nil && info.Size() > 650_000 {
				t.Errorf("%s: %s holds %d bytes", name, file, info.Size())
			}
		}
		h.broken = nil
		s, _ := pullTiny(t, h.client(t, cache))
		h.checkWhole(t, cache, s)
	}
}

// TestPullOntoAFullDisk: the room is checked before the first byte; a disk that fills up meanwhile
// is one error, and the pull goes on when there is room again.
func TestPullOntoAFullDisk(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	c := h.client(t, cache)
	c.free = func(string) (int64, bool) { return margin + 700_000, true }
	_, err := c.Pull(t.Context(), tinyRef, "", &heard{})
	if err == nil || !strings.Contains(err.Error(), "needs 0.7 MiB in "+cache) ||
		!strings.Contains(err.Error(), "HF_HUB_CACHE") || h.count("GET /acme") != 0 {
		t.Errorf("%v; %v", err, h.requests)
	}
	c.free = func(string) (int64, bool) { return 0, false }
	var mu sync.Mutex
	room := 400_000
	c.write = func(f *os.File, b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(b) <= room {
			room -= len(b)
			return f.Write(b)
		}
		n, _ := f.Write(b[:room])
		room = 0
		return n, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	_, err = c.Pull(t.Context(), tinyRef, "", &heard{})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "goes on from it") {
		t.Fatal(err)
	}
	if _, err := (Cache{cache}).Find(tinyRef); !errors.Is(err, ErrNotCached) {
		t.Errorf("found all the same: %v", err)
	}
	served := h.weightsServed()
	room = 1 << 30
	s, _ := pullTiny(t, c)
	h.checkWhole(t, cache, s)
	if again := h.weightsServed() - served; again >= 700_000 {
		t.Errorf("%d bytes were fetched again", again)
	}
}

func TestPullCanBeStopped(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c := h.client(t, cache)
	c.write = func(f *os.File, b []byte) (int, error) {
		if strings.Contains(f.Name(), h.hashOf("model.safetensors")) {
			cancel()
		}
		return f.Write(b)
	}
	if _, err := c.Pull(ctx, tinyRef, "", &heard{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s, _ := pullTiny(t, h.client(t, cache))
	h.checkWhole(t, cache, s)
}

// TestPullGivesUpOnSilence: a server that says no more is asked for the rest again.
func TestPullGivesUpOnSilence(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	silent := make(chan struct{}, 3)
	for range cap(silent) {
		silent <- struct{}{}
	}
	h.broken = func(w http.ResponseWriter, r *http.Request) bool {
		listing := strings.HasPrefix(r.URL.Path, "/api/") && len(silent) == cap(silent)
		if r.URL.Path != "/"+h.hashOf("model.safetensors") && !listing {
			return false
		}
		select {
		case <-silent:
		default:
			return false
		}
		w.Header().Set("Content-Length", "700000")
		_, _ = w.Write(noise(1, 700_000)[:1000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	c := h.client(t, cache)
	c.stall = 50 * time.Millisecond
	s, w := pullTiny(t, c)
	h.checkWhole(t, cache, s)
	if !strings.Contains(strings.Join(w.said, "\n"), "nothing came any more; again in 1s") {
		t.Error(w.said)
	}
}

// TestPullWaitsAsItIsAsked: a hub that is busy says for how long.
func TestPullWaitsAsItIsAsked(t *testing.T) {
	at := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		status int
		after  string
		waits  []time.Duration // of three refusals
		ends   bool
	}{
		{429, "7", []time.Duration{7e9, 7e9, 7e9}, true},
		{503, "", []time.Duration{1e9, 2e9, 4e9}, true},
		{500, "x", []time.Duration{1e9, 2e9, 4e9}, true},
		{429, at, []time.Duration{30e9, 30e9, 30e9}, true},
		{429, "3600", nil, false},
	} {
		h, cache := newFakeHub(t), t.TempDir()
		left := 3
		h.broken = func(w http.ResponseWriter, _ *http.Request) bool {
			if left == 0 {
				return false
			}
			left--
			w.Header().Set("Retry-After", c.after)
			refuse(w, c.status, "", "slow down")
			return true
		}
		client := h.client(t, cache)
		var waits []time.Duration
		client.pause = func(_ context.Context, d time.Duration) error {
			waits = append(waits, d)
			return nil
		}
		s, err := client.Pull(t.Context(), tinyRef, "", &heard{})
		if c.ends {
			h.checkWhole(t, cache, s)
		} else if !errors.Is(err, ErrTemporary) ||
			!strings.Contains(err.Error(), "Requests (slow down), and asks to wait 1h") {
			t.Errorf("%d %s: %v", c.status, c.after, err)
		}
		for i, want := range c.waits {
			if i >= len(waits) || max(want-waits[i], waits[i]-want) > 2*time.Second {
				t.Errorf("%d %s: waited %v, want %v", c.status, c.after, waits, c.waits)
			}
		}
	}
	h := newFakeHub(t)
	h.broken = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 502, "", "")
		return true
	}
	_, err := h.client(t, t.TempDir()).Pull(t.Context(), tinyRef, "", &heard{})
	if !errors.Is(err, ErrTemporary) || !strings.Contains(err.Error(), "Bad Gateway (5 tries)") {
		t.Error(err)
	}
}
