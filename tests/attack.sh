#!/usr/bin/env bash
# The real binary against itself (tests/attack.py): kills, pauses, wrong clocks, both layouts; with an even seed repairs, too. Where there
# is FUSE, every other run is on a disk that fails.
#
#   tests/attack.sh [SECONDS]        four runs of so long; 15 each by default
#   tests/attack.sh --minutes N      runs of two minutes until N minutes are over; 20 before a release
#   tests/attack.sh SECONDS SEED     one run again, on a disk that fails if the seed is 2 or 3 above a multiple of four
#
# Each run has another seed, and prints it.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/storm.sh"
find_faultfs
attack() {
    local seed=$1 seconds=$2 disk=()
    [ $((seed % 4)) -lt 2 ] || disk=(${faultfs[@]+"${faultfs[@]}"})
    echo "attack: seed $seed, $seconds s, on a disk that $([ ${#disk[@]} -gt 0 ] && echo fails || echo is healthy)"
    python3 "$root/tests/attack.py" "$larder" --seconds "$seconds" --seed "$seed" --folder "$work" --shift "$work/shift.so" \
        ${disk[@]+"${disk[@]}"}
}
if [ $# -eq 2 ] && [ "$1" != --minutes ]; then attack "$2" "$1"; exit; fi
seed=$((RANDOM * 4))
if [ "${1:-}" = --minutes ]; then
    until [ $SECONDS -ge $(($2 * 60)) ]; do attack $seed 120; seed=$((seed + 1)); done
else
    for run in 0 1 2 3; do attack $((seed + run)) "${1:-15}"; done
fi
