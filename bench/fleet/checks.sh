#!/usr/bin/env bash
# How a check of all content scales with workers, where the network of each host is the limit.
#
# Each process may load 8 MiB a second. The repository has some 400 MiB in a local folder.
#
#   bench/fleet/checks.sh LARDER [SERIES]
set -euo pipefail

larder=$(realpath "$1")
series=${2:-25}
dir=$(mktemp -d)
workers=()
end() {
    for worker in "${workers[@]}"; do kill -9 "$worker" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap end EXIT
export LARDER_REPOSITORY=$dir/repository LARDER_PASSWORD=bench XDG_CACHE_HOME=$dir/cache LARDER_STATE=$dir/state
"$larder" -q init --insecure-kdf
for number in $(seq "$series"); do
    head -c 16M /dev/urandom >"$dir/file"
    "$larder" -q backup "$dir/file" --series "s$number" --no-similar
done
echo "workers beside the check; seconds; containers that workers read; CPU seconds of the check"
for count in 0 1 3; do
    workers=()
    for _ in $(seq "$count"); do
        timeout 900 "$larder" -q fleet work --limit-download 8MiB >"$dir/work.log" 2>&1 &
        workers+=($!)
    done
    sleep 3
    from=$(date +%s.%N)
    TIMEFORMAT='%U %S'
    { time timeout 900 "$larder" --json check --read-data --no-index --workers $((count + 1)) \
        --limit-download 8MiB >"$dir/check.json" 2>"$dir/check.log"; } 2>"$dir/time"
    to=$(date +%s.%N)
    read=$(grep -o '"containers_read_by_workers":[0-9]*' "$dir/check.json" | cut -d: -f2)
    echo "$count; $(echo "$to - $from" | bc); $read; $(cat "$dir/time")"
    for worker in "${workers[@]}"; do kill "$worker" 2>/dev/null || true; done
    wait
done
