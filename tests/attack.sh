#!/usr/bin/env bash
# The real binary against itself (tests/attack.py): once without, once with repairs of the index in between.
#
#   tests/attack.sh [SECONDS]
source "$(dirname "$0")/common.sh"
for seed in 1 2; do
    python3 "$root/tests/attack.py" "$larder" --seed $seed --seconds "${1:-20}" --folder "$work"
done
