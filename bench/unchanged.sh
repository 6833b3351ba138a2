#!/usr/bin/env bash
# A tree of very many small files that has not changed since the last backup: Larder beside restic.
#
#   bench/unchanged.sh [FILES] [FOLDER]        default: 1000000 files below /dev/shm (5 GB of memory)
#
# Prints a Markdown table. BENCH_LARDER names another binary, as for run.py. Needs /usr/bin/time.
set -euo pipefail
cd "$(dirname "$0")/.."
files=${1:-1000000}
if [ -z "${BENCH_LARDER:-}" ]; then
    cargo build --release --quiet --package larder
fi
larder=$(realpath "${BENCH_LARDER:-${CARGO_TARGET_DIR:-target}/release/larder}")
work=$(mktemp -d -p "${2:-/dev/shm}")
trap 'rm -rf "$work"' EXIT
export LARDER_PASSWORD=x RESTIC_PASSWORD=x XDG_CACHE_HOME=$work/cache LARDER_STATE=$work/state
export LARDER_REPOSITORY=$work/larder RESTIC_REPOSITORY=$work/restic
python3 - "$work/tree" "$files" <<'PY'
import os, sys
top, count = sys.argv[1], int(sys.argv[2])
for folder in range((count + 999) // 1000):
    path = f"{top}/{folder % 40:02}/{folder:05}"
    os.makedirs(path)
    for name in range(min(1000, count - folder * 1000)):
        with open(f"{path}/file-{name:04}.txt", "w") as file:
            file.write(f"{folder} {name}\n")
PY
sleep 3
load() { cut -d' ' -f1 /proc/loadavg; }
echo "$files files of some bytes in folders of 1000, $(nproc) cores; $("$larder" --version), $(restic version 2>/dev/null | cut -d' ' -f1-2)."
echo "Load of the machine before: $(load)."
echo
echo "| tool | backup | wall s | CPU s (user+system) | peak kB |"
echo "|---|---|---:|---:|---:|"
measured() { # tool, what, command...
    local name="$1 | $2"
    shift 2
    /usr/bin/time -f "| $name | %e | %U+%S | %M |" -o "$work/time" "$@" >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
    tail -1 "$work/time"
}
"$larder" -q init >/dev/null
for what in first unchanged unchanged; do measured larder $what "$larder" -q backup "$work/tree"; done
if command -v restic >/dev/null; then
    restic -q init >/dev/null
    for what in first unchanged unchanged; do measured restic $what restic -q backup "$work/tree"; done
fi
echo
echo "Load after: $(load)."
