#!/usr/bin/env bash
# build.sh FOLDER builds the emulated driver there: libcuda.so.1, and libcublas.so.12 beside it.
# Objects are kept in FOLDER/objects and made anew when a source changed.
# build.sh FOLDER BASE SOURCE builds one there whose kernels of the file SOURCE replace those of the
# same name in BASE, a folder of an earlier call. Such a driver has that file's kernels for bf16
# alone, and of the tensor core ones those for heads of 64.
# CXX names the compiler (g++ 12 or later, on x86-64 with AVX2).
set -euo pipefail
mkdir -p "$1/objects"
out=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
kernels=$here/../kernels/src
flags=(-std=c++17 -O1 -fPIC -fvisibility=hidden -ftls-model=initial-exec -ffp-contract=off
  -mavx2 -mfma -mf16c -Wall -Wextra -Wno-unused-parameter -DENGINE_EMULATED -I"$here")
read -ra more <<<"${EMULATOR_FLAGS:-}"

# compile SOURCE OBJECT [FLAG…]
compile() {
  local source=$1 object=$2
  shift 2
  if [ -e "$object" ] && [ -z "$(find "$here" "$kernels" -newer "$object" \
    \( -name '*.h' -o -path "$source" -o -path "$0" \) -print -quit)" ]; then
    return
  fi
  "${CXX:-g++}" "${flags[@]}" "$@" ${more[@]+"${more[@]}"} -x c++ -c -o "$object.part" "$source"
  mv "$object.part" "$object"
}

link_driver() {
  "${CXX:-g++}" -shared -pthread -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" "$@"
}

if [ $# = 3 ]; then
  name=kernel_$(basename "$3" .cu).o
  compile "$3" "$out/objects/$name" -DENGINE_FEW
  mapfile -t others < <(find "$2/objects" -name '*.o' ! -name "$name" ! -name cublas.o)
  link_driver "$out/objects/$name" "${others[@]}"
  exit
fi

driver=()
jobs=()
add() {
  compile "$@" &
  jobs+=($!)
  if [ "${#jobs[@]}" -ge "${JOBS:-2}" ]; then
    wait "${jobs[0]}"
    jobs=("${jobs[@]:1}")
  fi
}
for name in attend_fast attend_any kv rope rowwise sample; do
  driver+=("$out/objects/kernel_$name.o")
  add "$kernels/$name.cu" "$out/objects/kernel_$name.o"
done
for name in block copies devices fault fiber graphs grid memory module shared state stream \
  unsupported; do
  driver+=("$out/objects/$name.o")
  add "$here/$name.cpp" "$out/objects/$name.o"
done
# What computes products is worth the compiler's time.
driver+=("$out/objects/warp.o")
add "$here/warp.cpp" "$out/objects/warp.o" -O3
add "$here/cublas.cpp" "$out/objects/cublas.o" -O3
for job in ${jobs[@]+"${jobs[@]}"}; do wait "$job"; done

link_driver "${driver[@]}"
"${CXX:-g++}" -shared -pthread -Wl,-soname,libcublas.so.12 -Wl,-rpath,'$ORIGIN' \
  -o "$out/libcublas.so.12" "$out/objects/cublas.o" "$out/libcuda.so.1"
