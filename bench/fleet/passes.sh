#!/usr/bin/env bash
# How a pass that retires containers scales with workers, where the network of each host is the limit.
# With `defragment`, it is the rewrite of a newest snapshot.
#
# Each process may load 8 MiB a second, and send as much. Each series of the repository has 16 MiB of
# which half is forgotten, so the pass copies the other half. For `defragment`, one series has all of
# that, and its newest snapshot needs one half.
#
#   bench/fleet/passes.sh LARDER [SERIES [defragment]]
set -euo pipefail

larder=$(realpath "$1")
series=${2:-20}
mode=${3:-retire}
dir=$(mktemp -d)
workers=()
end() {
    for worker in "${workers[@]}"; do kill -9 "$worker" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap end EXIT
export LARDER_PASSWORD=bench XDG_CACHE_HOME=$dir/cache LARDER_STATE=$dir/state LARDER_REPOSITORY=$dir/base
"$larder" -q init --insecure-kdf
mkdir "$dir/files"
if [ "$mode" = defragment ]; then
    # Both kinds of blocks are in each container. The newest snapshot has every other one.
    for half in $(seq $((8 * series))); do
        head -c 1M /dev/urandom >"$dir/files/$half-keep"
        head -c 1M /dev/urandom >"$dir/files/$half-leave"
    done
    "$larder" -q backup "$dir/files" --series s1
    rm "$dir"/files/*-leave
    # A rewrite copies three bytes at most for a new one, and a twentieth of the snapshot.
    for new in $(seq "$series"); do head -c 3M /dev/urandom >"$dir/files/$new-new"; done
    "$larder" -q backup "$dir/files" --series s1
    tasks=(--task defragment --max-unused 0) copied=bytes
    series=0
else
    tasks=(--task exact --max-unused 0) copied=copied_bytes
fi
for number in $(seq "$series"); do
    # Blocks of both kinds are in each container. The first snapshot has all blocks, the second one every other, the third none of them.
    for half in $(seq 8); do head -c 1M /dev/urandom >"$dir/files/$half-keep"; head -c 1M /dev/urandom >"$dir/files/$half-leave"; done
    "$larder" -q backup "$dir/files" --series "s$number" --no-similar
    rm "$dir"/files/*-leave
    "$larder" -q backup "$dir/files" --series "s$number" --no-similar
    rm "$dir"/files/*-keep
    head -c 4K /dev/urandom >"$dir/files/new"
    "$larder" -q backup "$dir/files" --series "s$number" --no-similar
    rm "$dir"/files/new
done
for number in $(seq "$series"); do
    first=$("$larder" snapshots --series "s$number" --json | grep -o '"id": *"[0-9a-f]*"' | head -1 | grep -o '[0-9a-f]\{16,\}')
    "$larder" -q forget "$first"
done
number() { grep -o "\"$1\": *[0-9]*" "$dir/pass.json" | grep -o '[0-9]*$' | sort -n | tail -1; }
echo "workers beside the pass; seconds; bytes copied; of these by workers; loaded and sent by the pass; its CPU seconds; of workers"
for count in 0 1 2 3; do
    cp -r "$dir/base" "$dir/repository"
    rm -rf "$dir/state" "$dir/cache"
    export LARDER_REPOSITORY=$dir/repository
    workers=()
    for _ in $(seq "$count"); do
        timeout 900 "$larder" -q fleet work --limit-download 8MiB --limit-upload 8MiB >"$dir/work.log" 2>&1 &
        workers+=($!)
    done
    sleep 3
    from=$(date +%s.%N)
    TIMEFORMAT='%U %S'
    { time timeout 900 "$larder" --json optimize "${tasks[@]}" --min-age 0 --workers $((count + 1)) \
        --limit-download 8MiB --limit-upload 8MiB >"$dir/pass.json" 2>"$dir/pass.log"; } 2>"$dir/time"
    to=$(date +%s.%N)
    cpu=
    for worker in "${workers[@]}"; do
        # User and system time of `timeout`'s child, in hundredths of a second.
        child=$(pgrep -P "$worker")
        cpu+=" $(awk '{ printf "%.2f", ($14 + $15) / 100 }' "/proc/$child/stat")"
    done
    echo "$count; $(echo "$to - $from" | bc); $(number "$copied"); $(number bytes_copied_by_workers);" \
        "$(number bytes_down) $(number bytes_up); $(cat "$dir/time");$cpu"
    for worker in "${workers[@]}"; do kill "$worker" 2>/dev/null || true; done
    wait
    "$larder" -q check --read-data
    rm -rf "$dir/repository"
done
