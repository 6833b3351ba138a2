#!/bin/sh
# Runs fuzz targets, each for a number of seconds: run.sh SECONDS [TARGET...]. Without targets, all of them. As many run at once
# as there are processors.
# Without a sanitizer: nothing below the decoders is unsafe, and so a stable compiler will do.
# Begins no other target after a finding; the input that did it is in fuzz/artifacts.
# LARDER_FUZZ_PROFILE=dev builds in half the time, for runs of seconds.
set -eu

profile=--${LARDER_FUZZ_PROFILE:-release}
seconds=${1:?usage: run.sh SECONDS [TARGET...]}
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(cd fuzz/fuzz_targets && ls ./*.rs | sed 's|^\./||; s|\.rs$||')

if [ "${LARDER_FUZZ_ONE:-}" ]; then
    target=$1
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # A short input must not take long or much; the limits turn slowness and greed into findings.
    code=0
    cargo fuzz run "$profile" --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=65536 -verbosity=0 -print_final_stats=1 > "$log" 2>&1 || code=$?
    echo "== $target, $seconds s"
    cat "$log"
    # 255 makes xargs stop.
    [ "$code" = 0 ] || exit 255
    exit 0
fi

cargo fuzz build "$profile" --sanitizer none
printf '%s\n' "$@" | LARDER_FUZZ_ONE=1 xargs -P "$(nproc)" -I TARGET "fuzz/run.sh" "$seconds" TARGET
