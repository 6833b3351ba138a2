#!/usr/bin/env bash
# The server of a volume store, killed again and again while four connections write to a volume.
#
#   tests/volume_kill.sh [LOOPS] [SEED]
#
# `flush_oracle` knows what each sector and each snapshot may have: that of the last acknowledged flush, or something written since.
# Snapshots, deletions and collections run meanwhile, by the control socket. In some loops the server is killed while it recovers.
source "$(dirname "$0")/volume_common.sh"
loops=${1:-40} seed=${2:-$RANDOM}
needs python3
build
RANDOM=$seed
echo "seed $seed"

"$larder" volume init "$work/store" --log 32MiB --insecure-kdf > /dev/null
"$larder" volume create "$work/store/disk" 24MiB > /dev/null
pause() { sleep "0.$(printf '%03d' $((RANDOM % $1)))"; }

coproc ORACLE { exec "$oracle" rounds "$work/nbd" disk "$work/store/control" "$seed"; }
oracle_job=$ORACLE_PID
# Numbers that stay when the process ends. The other ones would keep its input open.
exec 6<&"${ORACLE[0]}" 7>&"${ORACLE[1]}" {ORACLE[0]}<&- {ORACLE[1]}>&-
# says PATTERN: the next line of the oracle.
says() {
    read -r said <&6 || fail "the oracle ended in loop $loop"
    case $said in $1) ;; *) fail "loop $loop: $said" ;; esac
}

replayed=0 twice=0 compared=0 writes=0 flushes=0 requests=0
for loop in $(seq "$loops"); do
    # Killed while it recovers, once or twice.
    if [ $((RANDOM % 4)) = 0 ]; then
        for _ in $(seq $((1 + RANDOM % 2))); do
            "$larder" --memory 64M volume serve "$work/store" --nbd "unix:$work/nbd" > "$work/early" 2>&1 & server=$!
            pause 150
            grep -q 'serving' "$work/early" || twice=$((twice + 1))
            kill_server
        done
    fi
    # Small memory makes more commits, runs and merges.
    memory=16M
    [ $((RANDOM % 2)) = 0 ] || memory=128M
    serve "$work/store"
    case $first in *'"commits_replayed":0'*) ;; *) replayed=$((replayed + 1)) ;; esac
    if [ $((RANDOM % 12)) = 0 ]; then
        # Killed while it is read.
        echo 1000000 >&7
        pause 100
    else
        echo 1000000 >&7
        says 'whole*'
        case $((RANDOM % 8)) in 0) sleep "$((1 + RANDOM % 6))" ;; *) pause 999 ;; esac
    fi
    kill_server
    says '*'
    # It may have been read as a whole before it was killed.
    case $said in whole*) says 'ended*' ;; esac
    case $said in
        'ended, '*)
            read -r _ more _ more_flushes _ more_requests _ <<< "$said"
            writes=$((writes + more)) flushes=$((flushes + more_flushes)) requests=$((requests + more_requests)) ;;
        'ended while'*) compared=$((compared + 1)) ;;
        *) fail "loop $loop: $said" ;;
    esac
    if [ $((loop % 25)) = 0 ]; then
        "$larder" --memory 64M volume check "$work/store" --read-data > "$work/checked" 2>&1 || { cat "$work/checked"; fail "loop $loop: damage"; }
        echo "$loop loops: $replayed with a replay, $twice killed in recovery, $compared killed while compared;" \
            "$writes writes, $flushes flushes, $requests requests to the control socket"
    fi
done
serve "$work/store"
echo 0 >&7
says 'whole*'
says 'ended by itself*'
stop
exec 7>&-
wait "$oracle_job" || fail "the oracle ended with $?"
oracle_job=
"$larder" volume check "$work/store" --read-data > "$work/checked" 2>&1 || { cat "$work/checked"; fail "damage"; }
echo "volume_kill: $loops loops, nothing flushed was lost ($writes writes, $flushes flushes)"
