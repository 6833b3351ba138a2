#!/usr/bin/env bash
# Every kind of object, damaged in every way (tests/damage.py); with EIO where there is FUSE.
#
#   tests/damage.sh [SECONDS [--seed N]]    60 by default, in which each kind is damaged and some ways; 3600 do everything
source "$(dirname "$0")/common.sh"
find_faultfs
seconds=${1:-60}
[ $# -eq 0 ] || shift
python3 "$root/tests/damage.py" "$larder" --seconds "$seconds" --folder "$work" ${faultfs[@]+"${faultfs[@]}"} "$@"
