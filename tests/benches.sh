#!/usr/bin/env bash
# Each benchmark in its smallest size, with the program of the tests: it must end, and print the rows it promises. Figures are
# not looked at.
#
#   tests/benches.sh [NAME...]     all, or those whose names are given
#
# Needs root, /dev/fuse and loop devices for mounts, qemu-img, qemu-nbd, nbdcopy, mke2fs. Other backup tools take part where they
# are installed.
set -euo pipefail
# shellcheck source=tests/common.sh
source "$(dirname "$0")/common.sh"
cd "$root"
export BENCH_LARDER=$larder TMPDIR=$work
unset LARDER_PASSWORD LARDER_CACHE_DIR LARDER_STATE

# try NAME ROWS COMMAND...: the output must have at least this number of rows of a table, or of lines of JSON.
try() {
    local name=$1 rows=$2 found
    shift 2
    [ ${#names[@]} -eq 0 ] || [[ " ${names[*]} " == *" $name "* ]] || return 0
    "$@" > "$work/$name.out" 2> "$work/$name.err" || { tail -n 20 "$work/$name.out" "$work/$name.err"; fail "the benchmark $name"; }
    found=$(grep -cE '^(\|[^-]|\{)' "$work/$name.out" || true)
    [ "$found" -ge "$rows" ] || { cat "$work/$name.out" "$work/$name.err"; fail "the benchmark $name printed $found rows, not $rows"; }
    echo "$name: $found rows ($SECONDS s)"
}

names=("$@")
try data 0 bench/data.py --scale small --set db --versions 2
try run 4 bench/run.py --set db --scale small --tools larder --repeat 1 --versions 2 --restore --forget --passes --work "$work/run" --out "$work"
try metadata 3 bench/metadata.py --versions 3 --mib 4
try passes 5 bench/passes.py --rates 3 --versions 3 --mib 8 --sets pages tree
try passes-lifecycle 3 bench/passes.py --rates 3 --versions 3 --mib 8 --layouts lifecycle
try proofs 7 bench/proofs.py --rates 5 --versions 3 --mib 4
try proofs-cpu 2 bench/proofs.py --cpu --rates 5 --versions 2 --mib 4 --sets image
try starting 3 bench/starting.py --runs 2 --mib 4
try uncached 7 bench/uncached.py "now=$larder" --mib 16 --rounds 1 --wait 0.1 --work "$work"
try unchanged 4 bench/unchanged.sh 1000 "$work"
try images 2 bench/images.py --runs 1 --pieces 1 --changes 20
try sftp 3 bench/sftp.py --files 2 --kib 256 --runs 1
try import 3 bench/import.py --snapshots 2 --files 20 --runs 1
try mount 4 bench/mount.sh 1 "$work" 4
bench/fleet/make.py "$work/made" --synthetic --days 2
try fleet 3 bench/fleet/run.py "$work/made" --images 2 --days 2 --mib 64
try peers 4 bench/fleet/peers.py "$work/made" --images 2 --mib 64 --tools larder-fleet,larder-images
try rate 2 bench/fleet/rate.py --mib 128
try scaling 12 bench/fleet/scaling.py --workers 1,2 --images 2 --mib 1
try model 40 bench/fleet/model.py
[ -n "${LARDER_BUILT:-}" ] || cargo build --quiet -p larder-bench-slimstore -p larder-bench-mfdedup
slimstore() { "$bin/larder-bench-slimstore" --out "$work/slimstore" "$@"; }
mfdedup() { "$bin/larder-bench-mfdedup" --out "$work/mfdedup" --scale 0.01 --versions 4 "$@"; }
# The heads of tables count as rows.
try slimstore 200 slimstore --scale 0.02 --versions 8 all
try mfdedup 20 mfdedup all
try real 3 mfdedup real
minio=$(command -v minio || echo "${GOBIN:-$HOME/.cache/larder-ci/bin}/minio")
[ ! -x "$minio" ] || try pass 17 slimstore --scale 0.005 pass --larder "$larder" --minio "$minio" --work "$work"
try generate 0 bench/volume/generate.py "$work/generated" --size 16
try volume 2 bench/volume/run.py --data "$work/generated" --work "$work/volume" --systems larder,raw --repeat 1 --copies
echo "every benchmark runs"
