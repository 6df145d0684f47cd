#!/usr/bin/env bash
# run.sh measures one NVIDIA GPU with what `make gpu-bundle` put beside it: tests against float64 and
# the goldens, a model's tokens, rates. It needs the driver and bash; everything else is looked for.
# Every stage has a time limit and goes on after a failure; the table comes last, logs go to $OUT.
# ENGINE_CUDA_DRIVER names another driver, such as the emulated one.
set -u
here=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
rows=()
failed=0

# stage NAME SECONDS COMMAND… runs a stage and keeps its row of the table.
stage() {
  local name=$1 limit=$2 began=$SECONDS code
  shift 2
  timeout "$limit" bash -c '"$@"' _ "$@" >"$OUT/$name.log" 2>&1
  code=$?
  local word=passed
  case $code in
    0) ! grep -q '^--- SKIP\|^testing: warning: no tests to run' "$OUT/$name.log" || word=skipped ;;
    124) word="out of time" failed=1 ;;
    *) word="failed ($code)" failed=1 ;;
  esac
  rows+=("$(printf '%-22s %-12s %4d s of %3d' "$name" "$word" $((SECONDS - began)) "$limit")")
}

probe() {
  uname -srm
  ldd --version | head -n 1
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv ||
    echo "no nvidia-smi"
  nvcc --version 2>/dev/null | tail -n 2
  ls /usr/local/cuda*/lib64/libcublas.so.* 2>/dev/null
  ldconfig -p | grep -E 'libcuda.so|libcublas.so'
  "$here/engine" version
}

# A driver and cuBLAS that the linker does not know of.
if [ -z "${ENGINE_CUDA_DRIVER+set}" ] && ! ldconfig -p | grep -q libcuda.so.1; then
  for path in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib64; do
    [ ! -e "$path/libcuda.so.1" ] || export ENGINE_CUDA_DRIVER=$path/libcuda.so.1
  done
fi
for path in /usr/local/cuda*/lib64 /usr/local/lib/python3*/dist-packages/nvidia/cublas/lib \
  /usr/lib/python3*/site-packages/nvidia/cublas/lib; do
  [ ! -d "$path" ] || export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export ENGINE_REQUIRE_CUDA=1 ENGINE_SHARED=$here/shared

# same PROMPT compares the tokens of both backends; differences of a near tie are told by the
# golden stage, which knows the gaps.
tokens() {
  local ids
  ids=$("$here/engine" run --backend "$1" --model "$here/shared/data/models/w256-bf16" --json \
    --temperature 0 --max-tokens 32 "Once upon a time" 2>>"$OUT/tokens.err" |
    sed -n 's/.*"token_ids":\(\[[^]]*\]\).*/\1/p')
  [ -n "$ids" ] && echo "$ids"
}
whole_model() {
  local cpu cuda
  cpu=$(tokens cpu) && cuda=$(tokens cuda) || return 1
  printf 'cpu  %s\ncuda %s\n' "$cpu" "$cuda"
  [ "$cpu" = "$cuda" ]
}

compare_torch() {
  python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || {
    echo '--- SKIP: no torch with CUDA'
    return 0
  }
  python3 "$here/torch_rates.py"
}

sanitize() { # TOOL
  command -v compute-sanitizer >/dev/null || {
    echo '--- SKIP: no compute-sanitizer'
    return 0
  }
  (cd "$here/cuda" && compute-sanitizer --tool "$1" --error-exitcode 9 ../cuda.test \
    -test.run 'TestRealSuite/(Norm|Attention|Pages)')
}

export -f probe whole_model tokens compare_torch sanitize
export here OUT
stage probe 20 probe
stage unit_ptx 90 bash -c "cd '$here/kernels' && ../kernels.test -test.v"
stage device_suite 60 bash -c "cd '$here/cuda' && ../cuda.test -test.v -test.run TestRealSuite"
stage goldens 60 bash -c "cd '$here/model' && ../model.test -test.v -test.run 'TestRealCUDA/(w256-bf16|random)'"
stage whole_model 40 whole_model
stage rates 90 bash -c "cd '$here/cuda' && ../cuda.test -test.v -test.run - -test.bench Real -test.benchtime 20x"
stage torch 40 compare_torch
stage memcheck 30 sanitize memcheck
stage racecheck 30 sanitize racecheck

printf '\n'
cat "$OUT/probe.log"
grep -h '^Benchmark' "$OUT/rates.log" 2>/dev/null || true
grep -h 'TFLOP\|GB/s' "$OUT/torch.log" 2>/dev/null || true
printf '\n'
printf '%s\n' "${rows[@]}"
exit "$failed"
