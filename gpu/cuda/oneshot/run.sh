#!/usr/bin/env bash
# run.sh measures one NVIDIA GPU with what `make gpu-bundle` put beside it: tests against float64 and
# the goldens, a model's tokens, rates. It needs the driver and bash; everything else is looked for.
# Every stage has a time limit and goes on after a failure; the table comes last, logs go to $OUT.
#
#   OUT                     where logs go; out/ beside this script
#   ENGINE_CUDA_DRIVER      another driver, such as the emulated one
#   ENGINE_ONESHOT_STAGES   the names of the stages to run, all if empty
#   ENGINE_BENCH_SMALL=1    a rehearsal on an emulated GPU: few tests, small shapes, no rates to keep
set -u
here=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
rows=()
failed=0
whole=470 # seconds of all stages together
patience=1
# A rehearsal judges no times: its machine may be slow, and busy.
[ "${ENGINE_BENCH_SMALL:-}" != 1 ] || patience=20

# stage NAME SECONDS COMMAND… runs a stage and keeps its row of the table.
stage() {
  local name=$1 limit=$(($2 * patience)) began=$SECONDS code word log=$OUT/$1.log
  case " ${ENGINE_ONESHOT_STAGES:-$name} " in *" $name "*) ;; *) return ;; esac
  shift 2
  [ "$limit" -le $((whole * patience - SECONDS)) ] || limit=$((whole * patience - SECONDS))
  if [ "$limit" -le 0 ]; then
    rows+=("$(printf '%-14s %s' "$name" 'not run: no time left')") failed=1
    return
  fi
  timeout -k 5 "$limit" bash -c '"$@"' _ "$@" >"$log" 2>&1
  code=$?
  word=passed
  case $code in
    0)
      if grep -q 'no tests to run' "$log"; then
        word='failed: no test of that name' failed=1
      elif grep -q '^ *--- SKIP' "$log" && ! grep -q '^ *--- PASS\|^PASS' "$log"; then
        word="skipped: $(sed -n 's/^ *--- SKIP: *//p' "$log" | head -n 1)"
      fi
      ;;
    124 | 137) word="out of time" failed=1 ;;
    *) word="failed ($code), see $name.log" failed=1 ;;
  esac
  rows+=("$(printf '%-14s %4d s of %3d  %s' "$name" $((SECONDS - began)) "$limit" "$word")")
}

# first COMMAND… prints the first path that is a program.
first() {
  local path
  for path in "$@"; do
    if path=$(command -v "$path" 2>/dev/null); then
      echo "$path"
      return
    fi
  done
}

probe() {
  uname -srm
  ldd --version 2>&1 | head -n 1
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,compute_cap \
    --format=csv || echo "no nvidia-smi"
  echo "driver: ${ENGINE_CUDA_DRIVER-the system\'s}"
  ldconfig -p 2>/dev/null | grep -E 'libcuda.so|libcublas.so' || true
  echo "ptxas: ${PTXAS:-none}, compute-sanitizer: ${SANITIZER:-none}"
  "$here/engine" version
}

# assemble makes a cubin for this GPU and has ptxas say what each kernel uses.
assemble() {
  local capability
  [ -n "$PTXAS" ] || {
    echo '--- SKIP: no ptxas (PyPI has one: nvidia-cuda-nvcc-cu12)'
    return 0
  }
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    head -n 1 | tr -d '. ')
  "$PTXAS" -v "-arch=sm_${capability:-90}" "$here/kernels/kernels.ptx" -o "$OUT/kernels.cubin"
}

# unit [IMAGE] runs the kernels' own tests, on the PTX or on another image of them. Mutants need a
# compiler and the emulated driver's objects.
unit() {
  cd "$here/kernels" || return 1
  if [ $# = 1 ]; then
    [ -s "$1" ] || {
      echo '--- SKIP: no cubin was made'
      return 0
    }
    export ENGINE_CUDA_IMAGE=$1
  fi
  ../kernels.test -test.v -test.run "$tests" -test.skip '^(TestMutants|TestPTX|TestPtxas)$'
}

device() { # PATTERN runs tests of the device.
  cd "$here/cuda" && ../cuda.test -test.v -test.run "$1"
}

goldens() {
  cd "$here/model" && ../model.test -test.v -test.run "TestRealCUDA/$models"
}

# rates PATTERN measures.
rates() {
  cd "$here/cuda" && ../cuda.test -test.run '^$' -test.bench "$1" -test.benchtime "$times"
}

# tokens BACKEND prints the tokens of a prompt.
tokens() {
  local ids
  ids=$("$here/engine" run --backend "$1" --model "$here/shared/data/models/w256-bf16" --json \
    --temperature 0 --max-tokens 32 "Once upon a time" 2>>"$OUT/tokens.err" |
    sed -n 's/.*"token_ids":\(\[[^]]*\]\).*/\1/p')
  [ -n "$ids" ] && echo "$ids"
}

# whole_model compares the tokens of both backends; differences of a near tie are told by the
# goldens, which know the gaps.
whole_model() {
  local cpu cuda
  cpu=$(tokens cpu) && cuda=$(tokens cuda) || {
    cat "$OUT/tokens.err"
    return 1
  }
  printf 'cpu  %s\ncuda %s\n' "$cpu" "$cuda"
  [ "$cpu" = "$cuda" ]
}

compare_torch() {
  python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
    echo '--- SKIP: no python3 with a torch that has CUDA'
    return 0
  }
  python3 "$here/torch_rates.py"
}

sanitize() { # TOOL
  [ -n "$SANITIZER" ] || {
    echo '--- SKIP: no compute-sanitizer'
    return 0
  }
  cd "$here/cuda" && "$SANITIZER" --tool "$1" --error-exitcode 9 ../cuda.test \
    -test.v -test.run "$checked"
}

# A driver and cuBLAS that the linker does not know of.
if [ -z "${ENGINE_CUDA_DRIVER+set}" ] && ! ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
  for path in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
    [ ! -e "$path/libcuda.so.1" ] || export ENGINE_CUDA_DRIVER=$path/libcuda.so.1
  done
fi
site=$(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())' \
  2>/dev/null || true)
programs=(/usr/local/cuda/bin)
for path in $site; do
  programs+=("$path/nvidia/cuda_nvcc/bin")
  [ ! -d "$path/nvidia/cublas/lib" ] ||
    export LD_LIBRARY_PATH=$path/nvidia/cublas/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
for path in /usr/local/cuda*/lib64; do
  [ ! -d "$path" ] || export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
PTXAS=$(first ptxas "${programs[@]/%//ptxas}")
SANITIZER=$(first compute-sanitizer "${programs[@]/%//compute-sanitizer}")

tests=. models='(w256-bf16|random)' times=10x suite='^TestReal(Suite|SharedMemory|Lanes)$'
checked='^TestRealSuite$/^(Norm|Attention|Pages|Choice)$'
if [ "${ENGINE_BENCH_SMALL:-}" = 1 ]; then
  tests='^(TestSampling|TestNorm)$' models='random/qwen3' times=1x
  suite='^TestRealSuite$/^(Choice|Norm)$' checked='^TestRealSuite$/^Norm$'
fi
export ENGINE_REQUIRE_CUDA=1 ENGINE_SHARED=$here/shared
export here OUT PTXAS SANITIZER tests models times checked
export -f probe assemble unit device goldens rates tokens whole_model compare_torch sanitize

stage probe 15 probe
stage assemble 30 assemble
stage unit_ptx 60 unit
stage unit_cubin 45 unit "$OUT/kernels.cubin"
stage suite 40 device "$suite"
stage goldens 40 goldens
stage whole_model 30 whole_model
stage products 40 rates '^BenchmarkRealProducts$'
stage kernels 40 rates '^BenchmarkRealKernels$'
stage prefill 45 rates '^BenchmarkRealPrefill$'
stage decode 30 rates '^BenchmarkRealDecode$'
stage staging 25 rates '^BenchmarkRealStaging$'
stage links 20 device '^TestRealLinks$'
stage torch 30 compare_torch
stage memcheck 25 sanitize memcheck
stage racecheck 25 sanitize racecheck

printf '\n'
cat "$OUT/probe.log" 2>/dev/null
printf '\n'
grep -h '^spill\|spill stores\|^ptxas.*Used' "$OUT/assemble.log" 2>/dev/null |
  grep -v ' 0 bytes spill stores' | grep spill || true
for name in products kernels prefill decode staging; do
  awk '/^Benchmark/ && NF > 3 {
    printf "%-52s", substr($1, 14)
    for (i = 3; i < NF; i += 2) printf "  %12s %s", $i, $(i + 1)
    print ""
  }' "$OUT/$name.log" 2>/dev/null
done
grep -h '^rate ' "$OUT/links.log" 2>/dev/null || true
grep -h 'TFLOP\|GB/s' "$OUT/torch.log" 2>/dev/null || true
printf '\n'
printf '%s\n' "${rows[@]}" "$SECONDS s in all"
exit "$failed"
