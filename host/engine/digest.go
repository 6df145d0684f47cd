package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math"
)

// sampleNoted is sample, and a debug line with the step, the token and a digest of the logits it
// came from, so that runs can be compared bit for bit, also across processes. Without debug lines
// nothing is computed: a row is thousands of numbers.
func (e *Engine) sampleNoted(step uint64, r *request, logits []float32) outcome {
	if !e.options.Log.Enabled(context.Background(), slog.LevelDebug) {
		return e.sample(r, logits)
	}
	n, digest := r.generated, rowDigest(logits) // Penalties change the row in place.
	out := e.sample(r, logits)
	e.options.Log.Debug("token sampled", "step", step, "id", r.ask.ID, "n", n, "token", out.token,
		"logits", digest)
	return out
}

// rowDigest names the bits of a row.
func rowDigest(logits []float32) string {
	row := make([]byte, 0, 4*len(logits))
	for _, x := range logits {
		row = binary.LittleEndian.AppendUint32(row, math.Float32bits(x))
	}
	sum := sha256.Sum256(row)
	return hex.EncodeToString(sum[:8])
}
