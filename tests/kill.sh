#!/usr/bin/env bash
# The real binary killed with SIGKILL at random moments, frozen with SIGSTOP, interrupted with SIGINT and with clocks that jump,
# while two G-nodes run beside it and die as well: what was committed stays whole, no run needs an unlock, and everything restores.
#
#   tests/kill.sh [ROUNDS]
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/storm.sh"
rounds=${1:-12}
export LARDER_REPOSITORY=$work/repository
"$larder" -q init --insecure-kdf
tree "$work/source" 1
"$larder" -q backup "$work/source"

storm "$((rounds / 2))" "$work/source"
# The same where what newer snapshots drop is arranged all the time.
LARDER_REPOSITORY=$work/lifecycle
"$larder" -q init --insecure-kdf
"$larder" -q series set --default --layout lifecycle --holes 5
"$larder" -q backup "$work/source"
storm "$((rounds - rounds / 2))" "$work/source"
"$larder" snapshots --json | grep -q '"layout":"lifecycle"' || fail "no snapshot has the layout that was set"

# A restore killed and run again ends in the same tree.
for round in $(seq 3); do
    rm -rf "$work/again"
    "$larder" -q restore "latest:$work/source" --target "$work/again" & job=$!
    sleep "0.$(printf '%03d' $((RANDOM % 400)))"
    kill -KILL $job 2>/dev/null || true; wait $job || true
    "$larder" -q restore "latest:$work/source" --target "$work/again"
    same "$work/source" "$work/again"
done
echo "kill: $rounds rounds, everything whole"
