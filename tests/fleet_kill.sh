#!/usr/bin/env bash
# The real binary killed with SIGKILL after registers of a fleet batch (fleet_kill.py): a worker, and the process that planned.
#
#   tests/fleet_kill.sh [--every N] [--first N] [--seed N] [--shared N] [worker] [planner]      after each of them by default: five minutes
source "$(dirname "$0")/common.sh"
python3 "$root/tests/fleet_kill.py" "$larder" "$@"
