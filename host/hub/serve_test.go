package hub

import (
	"fmt"
	"io"
	"os"
	"testing"
)

// TestServe is the fake hub for testdata/check_client.py: it prints its address and serves until
// its stdin ends.
func TestServe(t *testing.T) {
	if os.Getenv("ENGINE_HUB_SERVE") == "" {
		t.Skip("a hub for testdata/check_client.py, which sets ENGINE_HUB_SERVE")
	}
	h := newFakeHub(t)
	h.shard()
	h.files["model-00001-of-00003.safetensors"] = noise(11, 30<<20)
	fmt.Printf("serving %s/%s at %s\n", h.model, h.commit, h.hub.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Printf("%d requests, %d with a token elsewhere\n", len(h.requests), len(h.leaked))
}
