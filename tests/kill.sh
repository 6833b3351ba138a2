#!/usr/bin/env bash
# The real binary killed with SIGKILL at random moments, frozen with SIGSTOP, and interrupted with SIGINT: what was committed
# stays whole, the next run needs no unlock, and everything restores.
#
#   tests/kill.sh [ROUNDS]
source "$(dirname "$0")/common.sh"
rounds=${1:-12}
export LARDER_REPOSITORY=$work/repository
"$larder" -q init --insecure-kdf
tree "$work/source" 1
"$larder" -q backup "$work/source"

for round in $(seq "$rounds"); do
    # Something new each time, so that there is always something to upload.
    head -c 20000000 /dev/urandom > "$work/source/new"
    "$larder" -q backup "$work/source" & job=$!
    sleep "0.$(printf '%03d' $((RANDOM % 700)))"
    case $((round % 3)) in
        0) kill -STOP $job 2>/dev/null || true
           # Another job of the same series runs beside the frozen one.
           "$larder" -q backup "$work/source"
           kill -CONT $job 2>/dev/null || true
           wait $job || fail "a job that was frozen for a while should still commit" ;;
        1) kill -KILL $job 2>/dev/null || true; wait $job || true ;;
        2) kill -INT $job 2>/dev/null || true
           code=0; wait $job || code=$?
           # It may have been done before the signal came.
           [ $code -eq 130 ] || [ $code -eq 0 ] || fail "an interrupted backup ended with $code" ;;
    esac
done
"$larder" -q backup "$work/source"
"$larder" -q check --read-data
"$larder" -q restore "latest:$work/source" --target "$work/restored"
same "$work/source" "$work/restored"

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
