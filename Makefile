# make check is what every commit must pass. It needs Go alone.

export CGO_ENABLED ?= 0

# The platforms that must compile beside the one at hand.
CROSS = linux/arm64 darwin/arm64 windows/amd64

# Packages with goroutines and locks.
RACE = ./host/access ./host/engine ./host/transfer ./host/api ./host/admin ./host/router ./host/trace ./host/metrics ./host/hub \
	./plugins ./cmd/engine

FUZZTIME ?= 10s

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: cuda cuda-build cuda-emulator cuda-test gpu-bundle gpu-rehearsal ptx bench-peer bench-gate check fmt vet tidy test build cross generate policies policies-write race fuzz staticcheck vuln

check: fmt vet tidy test ## everything a commit must pass

fmt: ## every file is as gofmt writes it
	@test -z "$$(gofmt -l .)" || { echo "run gofmt -w on:"; gofmt -l .; exit 1; }

vet: ## go vet, also of what a guest compiles
	go vet ./...
	GOOS=wasip1 GOARCH=wasm go vet ./abi ./abi/guest/go

tidy: ## go.mod names what is imported
	go mod tidy -diff

test: ## all tests
	go test ./...

build: ## one static binary, bin/engine
	go build -trimpath -o bin/engine ./cmd/engine

cross: ## the other platforms compile
	@for p in $(CROSS); do echo "build $$p"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./... || exit 1; done

# What a build with CUDA needs beside Go and a C compiler: our own header, and an empty archive for -lcuda.
CUDA = CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/gpu/cuda/include" CGO_LDFLAGS="-L$(CURDIR)/bin/cuda-link"

cuda: cuda-test cuda-build ## the device for NVIDIA GPUs, tested on an emulated one, and bin/engine-cuda; needs gcc and g++

bin/cuda-link/libcuda.a:
	@mkdir -p bin/cuda-link
	@printf '!<arch>\n' >$@

cuda-build: bin/cuda-link/libcuda.a
	$(CUDA) go build -tags cuda -trimpath -o bin/engine-cuda ./cmd/engine

cuda-emulator: ## bin/cuda-emulator/libcuda.so.1, the driver for machines without a GPU; needs g++ 12
	gpu/cuda/emulator/build.sh bin/cuda-emulator

# The orders in which the emulated driver runs what may run: 0 is first come, first served.
SEEDS ?= 0 1 2 3

cuda-test: bin/cuda-link/libcuda.a cuda-emulator
	$(CUDA) go vet -tags cuda ./gpu/cuda/... ./cmd/engine
	ENGINE_CUDA_DRIVER= $(CUDA) go test -tags cuda ./gpu/cuda/drv
	$(CUDA) go test -tags cuda -run '^TestCUDAWithoutDriver$$' ./cmd/engine
	@for seed in $(SEEDS); do echo "emulated driver, seed $$seed"; \
	  ENGINE_REQUIRE_CUDA=1 ENGINE_EMULATOR_SEED=$$seed ENGINE_EMULATOR_DEVICES=2 \
	  ENGINE_CUDA_DRIVER=$(CURDIR)/bin/cuda-emulator/libcuda.so.1 \
	  $(CUDA) go test -count=1 -timeout 40m -tags cuda -run '^TestReal' ./gpu/cuda && \
	  ENGINE_REQUIRE_CUDA=1 ENGINE_EMULATOR_SEED=$$seed \
	  ENGINE_CUDA_DRIVER=$(CURDIR)/bin/cuda-emulator/libcuda.so.1 \
	  $(CUDA) go test -count=1 -timeout 40m -tags cuda ./gpu/cuda/kernels && \
	  ENGINE_REQUIRE_CUDA=1 ENGINE_EMULATOR_SEED=$$seed \
	  ENGINE_CUDA_DRIVER=$(CURDIR)/bin/cuda-emulator/libcuda.so.1 \
	  $(CUDA) go test -count=1 -tags cuda -run '^(TestRealCUDA|TestCUDA(Goldens|SenderKilled|Faults|Choices|Drafts|LostBehindARouter))$$' ./host/model ./cmd/engine || exit 1; done

# What one run on a real card needs, in one folder that may be carried there.
BUNDLE = bin/gpu-bundle

gpu-bundle: cuda-build ## bin/gpu-bundle: tests, binary, PTX, a model with its goldens; run.sh in it measures a card
	@rm -rf $(BUNDLE) && mkdir -p $(BUNDLE)/kernels $(BUNDLE)/cuda $(BUNDLE)/model $(BUNDLE)/shared/data/models
	$(CUDA) go test -tags cuda -c -ldflags '-s -w' -o $(BUNDLE)/cuda.test ./gpu/cuda
	$(CUDA) go test -tags cuda -c -ldflags '-s -w' -o $(BUNDLE)/kernels.test ./gpu/cuda/kernels
	$(CUDA) go test -tags cuda -c -ldflags '-s -w' -o $(BUNDLE)/model.test ./host/model
	$(CUDA) go build -tags cuda -trimpath -ldflags '-s -w' -o $(BUNDLE)/engine ./cmd/engine
	cp gpu/cuda/oneshot/run.sh gpu/cuda/oneshot/torch_rates.py $(BUNDLE)/
	cp gpu/cuda/kernels/kernels.ptx $(BUNDLE)/kernels/
	cp -r host/model/testdata $(BUNDLE)/model/testdata
	cp -r ../shared/data/models/w256-bf16 $(BUNDLE)/shared/data/models/
	mkdir -p $(BUNDLE)/shared/data/golden && cp ../shared/data/golden/inflated_w256-bf16.json $(BUNDLE)/shared/data/golden/
	@test "$$(du -sm $(BUNDLE) | cut -f1)" -lt 64 || { echo "the bundle is 64 MiB or more"; exit 1; }
	@du -sh $(BUNDLE)

gpu-rehearsal: gpu-bundle cuda-emulator ## every stage of the bundle's run.sh once, on the emulated GPU
	gpu/cuda/oneshot/rehearse.sh $(BUNDLE) $(CURDIR)/bin/cuda-emulator/libcuda.so.1

ptx: ## gpu/cuda/kernels/kernels.ptx is what clang-14 makes of its sources
	ENGINE_REQUIRE_TOOLCHAINS=1 go test -count=1 -run TestPTX ./gpu/cuda/kernels

generate: ## codec, SDK views and SPEC tables from abi/abi.toml
	go generate ./...

# Languages whose toolchain must be there; 1 is all of them, others are skipped where they are not.
REQUIRED ?= 1

policies: ## rebuild the shipped modules, compare them byte by byte, run their unit tests; needs clang-14, lld-14, rustc 1.63, ziglang, asc
	ENGINE_REQUIRE_TOOLCHAINS=$(REQUIRED) go test -count=1 -run TestShippedModules ./plugins/policyfile
	ENGINE_REQUIRE_TOOLCHAINS=$(REQUIRED) go test -count=1 -run TestUnits ./examples/plugins

policies-write: ## rebuild the shipped modules in place
	ENGINE_REQUIRE_TOOLCHAINS=1 go test -count=1 -run TestShippedModules ./plugins/policyfile -args -write

race: ## the packages with goroutines, under the race detector; needs a C compiler
	CGO_ENABLED=1 go test -race $(RACE)

fuzz: ## every fuzz target for FUZZTIME each
	@for p in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do echo "$$p $$f"; \
	    go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p || exit 1; \
	  done; done

# A GGUF file and llama-bench of a native Release build of llama.cpp; llama-batched-bench beside it
# measures what generates for several sequences at once.
MODEL ?= model.gguf
PEER ?= llama-bench
BENCH ?= -p 512,2048,8192 -n 64 --batch 1,8,16 --repeat 5

bench-peer: ## this engine and PEER on the same MODEL, round by round, with the ratios
	go run ./cmd/engine bench --model $(MODEL) --peer $(PEER) --threads 2 $(BENCH)

# The commit that bench-gate compares with, what it measures, and below which part of before it fails.
REF ?= HEAD~1
GATE ?= --kernels --dtype f16,bf16,q8_0,q4_k --rows 1,16,512 --threads 2 --repeat 3
LEAST ?= 0.95
ROUNDS ?= 5

bench-gate: ## the tree at hand against REF, by turns in one run: fails where something became slower
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && mkdir $$folder/before && \
	  git archive $(REF) | tar -x -C $$folder/before && \
	  (cd $$folder/before && go build -buildvcs=false -trimpath -o ../engine-before ./cmd/engine) && \
	  go build -trimpath -o $$folder/engine ./cmd/engine && \
	  $$folder/engine bench gate $$folder/engine-before --least $(LEAST) --rounds $(ROUNDS) -- $(GATE)

staticcheck: ## fetches the pinned linter
	go run $(STATICCHECK) ./...

vuln: ## known vulnerabilities; needs their database from the network
	go run $(GOVULNCHECK) ./...
