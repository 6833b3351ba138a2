#!/usr/bin/env bash
# The real binary against an S3 server that answers wrongly, not at all, or never again: see lying_s3.py.
#
#   tests/lying_s3.sh [SCENARIO...]
source "$(dirname "$0")/common.sh"
python3 "$root/tests/lying_s3.py" "$larder" "$@"
