//go:build cuda

package cuda_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/gpu/cuda"
	"github.com/kvrelay/engine/gpu/cuda/driver"
)

// What two processes of TestRealLanes say to one another: a line each, with the lane's kind first.
const (
	laneKind   = "ENGINE_TEST_LANE"
	laneHandle = "ENGINE_TEST_LANE_HANDLE"
	laneOwner  = "ENGINE_TEST_LANE_OWNER"
	laneFile   = 3 // the file of a lane of the host, as the sender has it

	realLane   = 64 << 10
	realLayers = 6
	realRows   = 61
)

// TestRealLanes: a process puts the layers of a prompt into memory of another one: registered
// memory of the host, memory of their one device, memory of a second device. Each layer arrives
// byte for byte, also behind a sender that was killed with a copy under way.
func TestRealLanes(t *testing.T) {
	if kind := os.Getenv(laneKind); kind != "" {
		sendRealLayers(t, kind)
		return
	}
	d := real(t, cuda.Options{Type: gpu.BF16, StagingBytes: 1 << 20})
	defer d.Close()
	for _, kind := range laneKinds {
		t.Run(kind, func(t *testing.T) {
			if kind == "peer" && d.Info().Devices < 2 {
				t.Skip("one device")
			}
			number, environment, file := lendReal(t, d, kind)
			dies := append(environment, laneKind+"="+kind+" die")
			two, err := receiveReal(t, d, number, dies, file)
			if two != 2 || err == nil {
				t.Errorf("%d layers came of a killed sender: %v", two, err)
			}
			all, err := receiveReal(t, d, number, append(environment, laneKind+"="+kind), file)
			if all != realLayers || err != nil {
				t.Errorf("%d layers came: %v", all, err)
			}
			if err := d.DetachLane(number); err != nil {
				t.Error(err)
			}
		})
	}
}

// lendReal is a lane of a kind, and what the sender needs to know of it.
func lendReal(t *testing.T, d *cuda.Device, kind string) (int, []string, *os.File) {
	t.Helper()
	if kind != "host" {
		number, handle, err := d.LendLane(realLane)
		if err != nil {
			t.Fatal(err)
		}
		return number, []string{laneHandle + "=" + hex.EncodeToString(handle),
			laneOwner + "=" + d.Identity()}, nil
	}
	file, err := os.CreateTemp("/dev/shm", "lane") // A driver may refuse a disk's file.
	if err == nil {
		err = errors.Join(os.Remove(file.Name()), file.Truncate(realLane))
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { file.Close() })
	number, err := d.AttachLane(mapReal(t, file), true)
	if err != nil {
		t.Fatal(err)
	}
	return number, nil, file
}

func mapReal(t *testing.T, file *os.File) []byte {
	t.Helper()
	memory, err := syscall.Mmap(int(file.Fd()), 0, realLane, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return memory // The test's end unmaps it.
}

// receiveReal starts a sender and takes what it places, layer by layer; it counts them, and says
// how the sender ended.
func receiveReal(
	t *testing.T, d *cuda.Device, number int, environment []string, file *os.File,
) (layers int, ended error) {
	t.Helper()
	sender := exec.Command(os.Args[0], "-test.run=^TestRealLanes$", "-test.count=1")
	sender.Env = append(os.Environ(), environment...)
	if file != nil {
		sender.ExtraFiles = []*os.File{file}
	}
	sender.Stderr = os.Stderr
	in, err := sender.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sender.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	got := newPrefill(t, d, realLayers, realRows)
	want := newPrefill(t, d, realLayers, realRows) // One prompt, one kind of device.
	want.layers(func(int) {})
	said := bufio.NewScanner(out)
	for said.Scan() {
		var layer, at int
		line := said.Text()
		if strings.HasPrefix(line, "begun") { // It waits to be killed within a copy.
			got.must(sender.Process.Kill())
			continue
		}
		if n, _ := fmt.Sscanf(line, "layer %d lies at %d", &layer, &at); n != 2 {
			continue
		}
		got.must(d.UnpackLane(got.kv, got.ranges(layer), number, at))
		layers++
		if _, err := io.WriteString(in, "taken\n"); err != nil {
			t.Fatal(err)
		}
	}
	for layer := range layers {
		if !bytes.Equal(got.pack(layer), want.pack(layer)) {
			t.Errorf("layer %d: other bytes arrived", layer)
		}
	}
	return layers, sender.Wait()
}

// sendRealLayers is the sender's process.
func sendRealLayers(t *testing.T, kind string) {
	kind, dies := strings.CutSuffix(kind, " die")
	ordinal := 0
	if kind == "peer" {
		ordinal = 1
	}
	drv, err := cuda.OpenDriver(ordinal)
	if errors.Is(err, driver.ErrNoDevice) {
		t.Skip(err)
	}
	d, err := cuda.Open(*drv, cuda.Options{Type: gpu.BF16, StagingBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	if kind == "host" {
		number, err = d.AttachLane(mapReal(t, os.NewFile(laneFile, "lane")), false)
	} else {
		handle, _ := hex.DecodeString(os.Getenv(laneHandle))
		owner := os.Getenv(laneOwner)
		if (owner == d.Identity()) != (kind == "device") || !d.Reaches(owner) {
			t.Fatalf("%s: from %s to %s", kind, d.Identity(), owner)
		}
		number, err = d.BorrowLane(handle, realLane, owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	placeReal(t, d, number, dies)
	if err := errors.Join(d.DetachLane(number), d.Close()); err != nil {
		t.Fatal(err)
	}
}

// placeReal computes a prompt and places each layer behind its append, in two halves of the lane in
// turn.
func placeReal(t *testing.T, d *cuda.Device, number int, dies bool) {
	p := newPrefill(t, d, realLayers, realRows)
	heard := bufio.NewScanner(os.Stdin)
	var waits [realLayers]func() error
	say := func(layer int) {
		p.must(waits[layer]())
		fmt.Printf("layer %d lies at %d\n", layer, layer%2*realLane/2)
		if !heard.Scan() {
			t.Fatal("the receiver has gone")
		}
	}
	p.layers(func(layer int) {
		if layer >= 2 {
			say(layer - 2)
		}
		wait, err := d.PackLane(p.kv, p.ranges(layer), number, layer%2*realLane/2)
		p.must(err)
		if waits[layer] = wait; dies && layer == 3 {
			fmt.Println("begun")
			heard.Scan()
		}
	})
	say(realLayers - 2)
	say(realLayers - 1)
}
