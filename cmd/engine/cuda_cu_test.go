//go:build cuda

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// driverVariable names the driver; without a value there is none.
const driverVariable = "ENGINE_CUDA_DRIVER"

// launchCUDA starts this binary, which has CUDA in it, with a driver and an environment besides.
func launchCUDA(t *testing.T, driver string, env []string, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seed := "ENGINE_EMULATOR_SEED"
	env = append(env, driverVariable+"="+driver, seed+"="+os.Getenv(seed), program)
	return launchCommand(t, exec.Command("env", append(env, args...)...))
}

// serveCUDA starts an instance on the driver that the environment names, of a machine with two
// devices, whose runtime folder is dir.
func serveCUDA(t *testing.T, driver, dir, text string) *node {
	t.Helper()
	n := prepareNode(t, text)
	n.process = launchCUDA(t, driver, []string{"XDG_RUNTIME_DIR=" + dir,
		"ENGINE_EMULATOR_DEVICES=2"}, "serve", "-c", n.file, "--until-eof")
	n.awaitReady()
	return n
}

// TestCUDAWithoutDriver: a binary with CUDA in it does on a machine without a driver all that needs
// none, and says what is missing for the rest.
func TestCUDAWithoutDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cuda.toml")
	if err := os.WriteFile(file, []byte("[backend]\nkind = \"cuda\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		driver string
		args   []string
		code   int
		says   string
	}{
		{"", []string{"version"}, 0, "cpu, cuda"},
		{"", []string{"config", "check", "-c", file}, 0, "is valid"},
		{"", []string{"config", "check", "-c", file}, 0,
			"\n! device        cuda, number 0: this machine does not have it"},
		{"", []string{"policy", "check", "builtin:fcfs"}, 0, "descriptor"},
		{"", []string{"run", "--backend", "cpu", "--temperature", "0", "--max-tokens", "4",
			"In the beginning"}, 0, "4 tokens"},
		{"", []string{"run", "--backend", "cuda", "In the beginning"}, 1,
			`backend.kind = "cuda", device 0: no CUDA device: ` + driverVariable + " is empty"},
		{"", []string{"serve", "-c", file}, 1, "no CUDA device"},
		{"/nowhere/libcuda.so.1", []string{"serve", "-c", file}, 1, "/nowhere/libcuda.so.1"},
	} {
		t.Run(strings.Join(append(c.args[:1:1], c.driver), " "), func(t *testing.T) {
			p := launchCUDA(t, c.driver, nil, c.args...)
			p.wait(c.code)
			if said := p.out.String() + p.err.String(); !strings.Contains(said, c.says) {
				t.Errorf("%q is not in what %v said:\n%s", c.says, c.args, said)
			}
		})
	}
}

// emulatedDriver is the driver that the environment names.
func emulatedDriver(t *testing.T) string {
	t.Helper()
	driver := os.Getenv(driverVariable)
	if driver == "" {
		if os.Getenv("ENGINE_REQUIRE_CUDA") == "1" {
			t.Fatal(driverVariable + " names no driver")
		}
		t.Skip(driverVariable + " names no driver")
	}
	return driver
}

// TestCUDAGoldens: the reference's tokens come out of a prompt that one instance on a GPU computes,
// whose keys and values go to another one, which generates: through a connection, through memory of
// the host that both GPUs reach, through the memory of one GPU, from one to another. All run on the
// driver that ENGINE_CUDA_DRIVER names. The heads of the model have 64 numbers, as those of real
// ones.
func TestCUDAGoldens(t *testing.T) {
	driver := emulatedDriver(t)
	g := headsOf64(t)
	for _, way := range []struct{ by, transports, device string }{
		{"tcp", `["tcp"]`, "0"}, {"pinned", `["shm", "tcp"]`, "0"},
		{"ipc", `["ipc", "shm", "unix", "tcp"]`, "0"}, {"peer", `["ipc", "tcp"]`, "1"},
	} {
		t.Run(way.by, func(t *testing.T) {
			dir := shortDir(t)
			c := &cluster{t: t}
			c.prefill = serveCUDA(t, driver, dir, cudaText(g, "0", way.transports, "prefill"))
			c.decode = serveCUDA(t, driver, dir, cudaText(g, way.device, way.transports, "decode"))
			c.router = serveRouter(t, "", []*node{c.prefill}, []*node{c.decode})
			sent := goldensBy(t, c, g)
			for direction, n := range map[string]*node{"send": c.prefill, "receive": c.decode} {
				if bytes := n.metric("engine_transfer_bytes_total", `direction="`+direction+`"`,
					`transport="`+way.by+`"`); int64(bytes) != sent {
					t.Errorf("%s: %v bytes of keys and values by %s; the prompts have %d",
						direction, bytes, way.by, sent)
				}
			}
			c.rest(t)
			c.stop()
		})
	}
}

// headsOf64 is the model whose heads have 64 numbers.
func headsOf64(t *testing.T) goldenModel {
	t.Helper()
	data := filepath.Join(sharedDir(t), "data")
	return goldenModel{folder: filepath.Join(data, "models", "w256-bf16"),
		file: filepath.Join(data, "golden", "inflated_w256-bf16.json")}
}

// cudaText configures an instance on a device.
func cudaText(g goldenModel, device, transports, role string) string {
	return fmt.Sprintf("[backend]\nkind = \"cuda\"\ndevice = %s\n"+
		"[model]\npath = %q\nserved_names = [\"w256\"]\n"+
		"[kv_cache]\nprefix_cache = false\n[transfer]\ntransports = %s\n"+
		"[scheduler]\ntoken_budget = 16\n[node]\nrole = %q\nname = %q\n",
		device, g.folder, transports, role, role+"0")
}

// TestCUDASenderKilled: an instance is killed while it puts a prompt's keys and values into the
// memory of the instance that generates. That answers the request all the same, and what a next
// instance sends it by the same memory is what it computed.
func TestCUDASenderKilled(t *testing.T) {
	driver := emulatedDriver(t)
	g := headsOf64(t)
	for _, transports := range []string{`["ipc"]`, `["shm"]`} {
		dir := shortDir(t)
		c := &cluster{t: t}
		c.prefill = serveCUDA(t, driver, dir, cudaText(g, "0", transports, "prefill"))
		c.decode = serveCUDA(t, driver, dir, cudaText(g, "0", transports, "decode"))
		c.router = serveRouter(t, "", []*node{c.prefill}, []*node{c.decode})
		body := greedy.with(fields{"model": "w256", "prompt": strings.Repeat("word after word ", 9),
			"max_tokens": 4})
		answers := background(t.Context(), t, c.router.api+"/v1/completions", body)
		eventually(t, patience, func() error {
			if c.decode.metric("engine_leases", `state="writing"`) == 0 && len(answers) == 0 {
				return fmt.Errorf("no transfer is under way")
			}
			return nil
		})
		c.prefill.kill()
		if r := <-answers; r.status != http.StatusOK {
			code, message := r.failure(t)
			t.Logf("%s: the request failed: %s: %s", transports, code, message)
		}
		c.prefill = serveCUDA(t, driver, dir, cudaText(g, "0", transports, "prefill"))
		c.router.stop()
		c.router = serveRouter(t, "", []*node{c.prefill}, []*node{c.decode})
		goldensBy(t, c, g)
		c.rest(t)
		c.stop()
	}
}

// goldensBy asks a pair of instances for all golden cases, and says how many bytes of keys and
// values those have.
func goldensBy(t *testing.T, c *cluster, g goldenModel) (sent int64) {
	t.Helper()
	for _, want := range g.cases(t) {
		body := greedy.with(fields{"model": "w256", "prompt": want.PromptIDs,
			"return_token_ids": true})
		got := post(t, c.router.api+"/v1/completions", body).completion(t)
		if !slices.Equal(got.Choices[0].TokenIDs, want.GreedyIDs) {
			t.Errorf("%q: tokens %v, want %v", want.Prompt, got.Choices[0].TokenIDs,
				want.GreedyIDs)
		}
		sent += int64(len(want.PromptIDs)-1) * g.positionBytes(t)
	}
	return sent
}

// TestCUDAFaults: an instance whose GPU refuses a launch fails the requests of that step and serves
// on; one whose GPU is lost says so to everybody, and lives.
func TestCUDAFaults(t *testing.T) {
	driver := emulatedDriver(t)
	c := embeddedGolden().cases(t)[0]
	body := greedy.with(fields{"prompt": c.PromptIDs, "return_token_ids": true})
	for fault, lost := range map[string]bool{"launch=20": false, "launch=40": false,
		"launch=900": false, "lost=3000": true} {
		t.Run(fault, func(t *testing.T) {
			n := prepareNode(t, "[backend]\nkind = \"cuda\"\n[node]\nrole = \"all\"\n")
			n.process = launchCUDA(t, driver, []string{"ENGINE_EMULATOR_FAULTS=" + fault},
				"serve", "-c", n.file, "--until-eof")
			n.awaitReady()
			failed := 0
			for range 20 {
				r := post(t, n.api+"/v1/completions", body)
				if r.status == http.StatusOK {
					got := r.completion(t).Choices[0].TokenIDs
					if !slices.Equal(got, c.GreedyIDs) {
						t.Errorf("tokens %v, want %v", got, c.GreedyIDs)
					}
					continue
				}
				failed++
				code, message := r.failure(t)
				if !lost && (r.status != 500 || code != "internal_error") ||
					lost && (r.status != 503 || code != "device_lost") {
					t.Errorf("%d %s: %s", r.status, code, message)
				}
				t.Log(message)
			}
			ready := get(t, n.api+"/ready")
			switch {
			case !lost && (failed != 1 || ready.status != http.StatusOK):
				t.Errorf("%d requests failed, ready answers %d", failed, ready.status)
			case lost && (failed < 2 || failed == 20 || ready.status != 503):
				t.Errorf("%d requests failed, ready answers %d", failed, ready.status)
			}
			if live := get(t, n.api+"/live"); live.status != http.StatusOK {
				t.Errorf("live answers %d", live.status)
			}
			n.stop()
		})
	}
}
