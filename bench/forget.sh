#!/usr/bin/env bash
# The older half of a set is forgotten and its space freed: Larder beside restic and rustic, on the same data.
#
#   bench/forget.sh [DATA]        default: bench/data/full/db (bench/data.py makes it)
#
# Prints wall seconds, CPU seconds, peak memory and the repository before and after. Needs /usr/bin/time.
set -euo pipefail
cd "$(dirname "$0")/.."
data=$(realpath "${1:-bench/data/full/db}")
cargo build --release --quiet --package larder
larder=$(realpath "${CARGO_TARGET_DIR:-target}/release/larder")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LARDER_PASSWORD=x RESTIC_PASSWORD=x RUSTIC_PASSWORD=x XDG_CACHE_HOME=$work/cache
export LARDER_REPOSITORY=$work/larder RESTIC_REPOSITORY=$work/restic RUSTIC_REPOSITORY=$work/rustic

size() { du -sm "$1" | cut -f1; }
measured() { # name, repository, command...
    local name=$1 repository=$2 before
    shift 2
    before=$(size "$repository")
    sync
    /usr/bin/time -f "| $name | %e | %U+%S | %M |" -o "$work/time" "$@" >"$work/out" 2>&1 || { cat "$work/out"; return 1; }
    echo "$(tail -1 "$work/time") $before | $(size "$repository") |"
}

versions=("$data"/v*)
half=$(((${#versions[@]} + 1) / 2))
echo "| tool | wall s | CPU s (user+system) | peak kB | MB before | MB after |"
echo "|---|---:|---:|---:|---:|---:|"
"$larder" -q init >/dev/null
for version in "${versions[@]}"; do "$larder" -q backup --series s "$version" >/dev/null; done
measured "larder" "$work/larder" "$larder" forget --keep-last "$half" --prune
"$larder" -q check --read-data >/dev/null
if command -v restic >/dev/null; then
    restic -q init >/dev/null
    for version in "${versions[@]}"; do restic -q backup "$version" >/dev/null; done
    measured "restic" "$work/restic" restic forget --group-by host --keep-last "$half" --prune
fi
if command -v rustic >/dev/null; then
    rustic --log-level error init >/dev/null 2>&1
    for version in "${versions[@]}"; do rustic --log-level error backup "$version" >/dev/null 2>&1; done
    measured "rustic" "$work/rustic" rustic forget --group-by host --keep-last "$half" --prune --instant-delete
fi
