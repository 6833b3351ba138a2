#!/bin/sh
# Runs fuzz targets, each for a number of seconds: run.sh SECONDS [TARGET...]. Without targets, all of them.
# Without a sanitizer: nothing below the decoders is unsafe, and so a stable compiler will do.
# Stops at the first finding with its exit code; the input that did it is in fuzz/artifacts.
set -eu

seconds=${1:?usage: run.sh SECONDS [TARGET...]}
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(cd fuzz/fuzz_targets && ls ./*.rs | sed 's|^\./||; s|\.rs$||')
for target in "$@"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/seeds/$target"
    echo "== $target, $seconds s"
    # A short input must not take long or much; the limits turn slowness and greed into findings.
    cargo fuzz run --release --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=65536 -verbosity=0 -print_final_stats=1
done
