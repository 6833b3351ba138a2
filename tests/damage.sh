#!/usr/bin/env bash
# Every kind of object, damaged in every way (tests/damage.py); with EIO where there is FUSE.
#
#   tests/damage.sh [SECONDS]
source "$(dirname "$0")/common.sh"
fuse=()
if pkg-config --exists fuse3 2>/dev/null && [ -w /dev/fuse ]; then
    cc -O1 -o "$work/faultfs" "$root/tests/faultfs.c" $(pkg-config --cflags --libs fuse3) && fuse=(--faultfs "$work/faultfs")
fi
python3 "$root/tests/damage.py" "$larder" --seconds "${1:-60}" --folder "$work" ${fuse[@]+"${fuse[@]}"}
