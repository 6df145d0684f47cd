#!/usr/bin/env bash
# rehearse.sh BUNDLE DRIVER runs every stage of run.sh once, on the emulated driver and small shapes,
# so that a GPU's minutes are not spent on a script's mistakes. Tools of the vendor that are not here
# have stand-ins that do no more than call what they are given. Then it runs without any of them:
# what needs them must be skipped and say so.
set -euo pipefail
bundle=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ENGINE_CUDA_DRIVER=$2 ENGINE_BENCH_SMALL=1

mkdir "$scratch/tools"
cat >"$scratch/tools/ptxas" <<'END'
#!/bin/sh
# The emulated driver knows no cubin: this one is the PTX.
for word; do
  case $word in *.ptx) from=$word ;; esac
done
[ "$4" = -o ] && cp "$from" "$5"
END
cat >"$scratch/tools/compute-sanitizer" <<'END'
#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] || exit 2
shift 4
exec "$@"
END
cat >"$scratch/tools/nvidia-smi" <<'END'
#!/bin/sh
case "$*" in *noheader*) echo 9.0 ;; *) echo a stand-in ;; esac
END
chmod +x "$scratch"/tools/*
mkdir "$scratch/python"
cp "$here/torch_standin.py" "$scratch/python/torch.py"

run() { # NAME checks that the table says what it should.
  "$bundle/run.sh" >"$scratch/$1.txt" 2>&1 || {
    cat "$scratch/$1.txt"
    sed -n 's/^\([a-z_]*\) .*\(failed\|out of time\|not run\).*/\1/p' "$scratch/$1.txt" |
      while read -r name; do tail -n 200 "$OUT/$name.log"; done
    echo "the rehearsal $1 failed"
    exit 1
  }
  cat "$scratch/$1.txt"
}
need() { # FILE WORDS
  grep -q "$2" "$scratch/$1.txt" || {
    echo "the rehearsal $1 lacks: $2"
    exit 1
  }
}

OUT=$scratch/out PATH=$scratch/tools:$PATH PYTHONPATH=$scratch/python run whole
stages=$(sed -n 's/^stage \([a-z_]*\) [0-9].*/\1/p' "$bundle/run.sh")
rates=('Products/' 'Kernels/attention' 'Prefill/sending' 'Decode/step' 'Staging/in' 'rate ipc_copy')
if command -v python3 >/dev/null; then
  rates+=('torch attention')
else
  stages=${stages/torch/}
fi
for name in $stages; do need whole "^$name .* passed\$"; done
for rate in "${rates[@]}"; do need whole "$rate"; done

mkdir "$scratch/bare"
for name in bash timeout uname ldd head sed grep awk tr cat mkdir dirname; do
  ln -s "$(command -v "$name")" "$scratch/bare/$name"
done
OUT=$scratch/without PATH=$scratch/bare \
  ENGINE_ONESHOT_STAGES='probe assemble unit_cubin torch memcheck racecheck' run bare
for name in assemble unit_cubin torch memcheck racecheck; do need bare "^$name .* skipped: no "; done
