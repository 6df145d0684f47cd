//go:build cuda

package cuda_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// linkBytes is what one copy between memories moves.
func linkBytes() int {
	if os.Getenv("ENGINE_BENCH_SMALL") == "1" {
		return 1 << 20
	}
	return 256 << 20
}

const handleVariable = "ENGINE_BENCH_HANDLE"

// BenchmarkRealStaging is how keys and values leave the device and come to it, by the calls that a
// transfer makes: a prompt's pages of one layer through pinned memory, and through lanes.
func BenchmarkRealStaging(b *testing.B) {
	r := newRig(b)
	for _, tokens := range r.prompts {
		r.prompt(tokens)
		ranges := r.ranges()
		token := r.kv.Shape().TokenBytes()
		data := make([]byte, tokens*token)
		r.measure(fmt.Sprintf("out/T=%d", tokens), "GB/s", float64(len(data))/1e9, 1, func() {
			r.must(r.d.StageKV(r.kv, 0, ranges))
			for i, one := range ranges {
				r.must(r.d.PackKV(r.kv, one, data[i*r.page*token:][:one.Count*token]))
			}
		})
		r.measure(fmt.Sprintf("in/T=%d", tokens), "GB/s", float64(len(data))/1e9, 1,
			func() { r.must(r.d.UnpackRanges(r.kv, ranges, data)) })
		lane, err := r.d.AttachLane(data, true)
		r.must(err)
		r.lane("registered", lane, ranges)
		lane, _, err = r.d.LendLane(len(data))
		r.must(err)
		r.lane("device", lane, ranges)
	}
}

// lane measures a layer's way into a lane and out of it, without another process.
func (r *rig) lane(name string, number int, ranges []gpu.KVRange) {
	gigabytes := float64(r.tokens*r.kv.Shape().TokenBytes()) / 1e9
	r.measure(fmt.Sprintf("%s_lane_out/T=%d", name, r.tokens), "GB/s", gigabytes, 1, func() {
		wait, err := r.d.PackLane(r.kv, ranges, number, 0)
		r.must(err)
		r.must(wait())
	})
	r.measure(fmt.Sprintf("%s_lane_in/T=%d", name, r.tokens), "GB/s", gigabytes, 1,
		func() { r.must(r.d.UnpackLane(r.kv, ranges, number, 0)) })
	r.must(r.d.DetachLane(number))
}

// link is a driver with a stream, and pinned and device memory of one size.
type link struct {
	testing.TB
	*driver.Driver
	stream driver.Stream
	pinned []byte
	memory driver.Pointer
}

func openLink(t testing.TB) *link {
	t.Helper()
	d, err := cuda.OpenDriver(0)
	if err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread() // the context is this thread's
	t.Cleanup(runtime.UnlockOSThread)
	l := &link{TB: t, Driver: d}
	_, err = d.Open()
	l.must(err)
	l.stream, err = d.NewStream()
	l.must(err)
	l.pinned, err = d.AllocHost(linkBytes())
	l.must(err)
	l.memory, err = d.Alloc(int64(linkBytes()))
	l.must(err)
	l.must(d.Fill(l.memory, 7, int64(linkBytes()), l.stream))
	l.must(d.Finish(l.stream))
	return l
}

func (l *link) must(err error) {
	if err != nil {
		l.Helper()
		l.Fatal(err)
	}
}

// rate is GB/s of what f puts into the stream.
func (l *link) rate(f func()) float64 {
	const times = 10
	f()
	l.must(l.Finish(l.stream))
	began := time.Now()
	for range times {
		f()
	}
	l.must(l.Finish(l.stream))
	return times * float64(linkBytes()) / 1e9 / time.Since(began).Seconds()
}

// TestRealLinks measures what the ways between memories carry: pinned memory, memory of another
// process on the same GPU, and the next GPU, where there is one. The other process is this test
// again, and leaves what it has copied for this one to see.
func TestRealLinks(t *testing.T) {
	l := openLink(t)
	defer l.Close()
	n := int64(linkBytes())
	if text := os.Getenv(handleVariable); text != "" {
		var handle driver.ShareHandle
		_, err := hex.Decode(handle[:], []byte(text))
		l.must(err)
		from, err := l.OpenShared(handle)
		l.must(err)
		fmt.Printf("rate ipc_copy %.1f GB/s\n", l.rate(func() {
			l.must(l.CopyWithin(l.memory, from, n, l.stream))
		}))
		l.must(l.Fill(from, 9, n, l.stream))
		l.must(l.Finish(l.stream))
		l.must(l.CloseShared(from))
		return
	}
	fmt.Printf("rate pinned_out %.1f GB/s\n", l.rate(func() {
		l.must(l.CopyOut(l.pinned, l.memory, l.stream))
	}))
	fmt.Printf("rate pinned_in %.1f GB/s\n", l.rate(func() {
		l.must(l.CopyIn(l.memory, l.pinned, l.stream))
	}))
	own, err := l.Alloc(n)
	l.must(err)
	fmt.Printf("rate own_copy %.1f GB/s\n", l.rate(func() {
		l.must(l.CopyWithin(own, l.memory, n, l.stream))
	}))
	handle, err := l.Share(l.memory)
	l.must(err)
	self, err := os.Executable()
	l.must(err)
	other := exec.Command(self, "-test.run=^TestRealLinks$", "-test.count=1")
	other.Env = append(os.Environ(), handleVariable+"="+hex.EncodeToString(handle[:]))
	said, err := other.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("rate ipc_copy")) {
		t.Fatalf("the other process: %v\n%s", err, said)
	}
	os.Stdout.Write(said[:bytes.IndexByte(said, '\n')+1])
	l.must(l.CopyOut(l.pinned, l.memory, l.stream))
	l.must(l.Finish(l.stream))
	if !bytes.Equal(l.pinned, bytes.Repeat([]byte{9}, len(l.pinned))) {
		t.Error("what the other process wrote does not show")
	}
}
