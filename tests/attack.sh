#!/usr/bin/env bash
# The real binary against itself (tests/attack.py): once without, once with repairs of the index in between.
#
#   tests/attack.sh [SECONDS]    20 each by default; 600 each before a release
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/storm.sh"
attack() { python3 "$root/tests/attack.py" "$larder" --seconds "$seconds" --folder "$work" --shift "$work/shift.so" "$@"; }
seconds=${1:-20}
attack --seed 1
# Until a rebuild asks what live leases name, a pass after one may miss a container: without the option this shows it.
attack --seed 2 --tolerate-missing
