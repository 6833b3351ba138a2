# Backups, forgetting and two G-nodes at once, killed, frozen and with wrong clocks. Sourced after common.sh, with LARDER_REPOSITORY set
# and initialised:
#
#   storm ROUNDS SOURCE    SOURCE is a tree, in which the file "new" is rewritten each time
#
# What must hold: every snapshot that is listed in the end restores the bytes it was made of, the newest one the whole tree; whoever
# was only frozen commits, unless somebody took it for dead; the G-nodes go on whatever happens; nothing is left over.

# A library that shifts the wall clock of a process by SHIFT_SECONDS.
cat > "$work/shift.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    const char *shift = getenv("SHIFT_SECONDS");
    if (result == 0 && shift && id == CLOCK_REALTIME) at->tv_sec += atol(shift);
    return result;
}
C
cc -shared -fPIC -o "$work/shift.so" "$work/shift.c" -ldl

# Puts into `shifted` what runs a command with a clock that is wrong by one of these seconds. A command of its own and no function, so
# that signals reach whom they are meant for.
shift_by() {
    local shifts=("$@") seconds
    # S3 refuses requests that are signed a quarter of an hour away from its own time.
    case $LARDER_REPOSITORY in s3:*)
        shifts=()
        for seconds in "$@"; do [ "${seconds#-}" -gt 600 ] || shifts+=("$seconds"); done ;;
    esac
    shifted=(env "SHIFT_SECONDS=${shifts[RANDOM % ${#shifts[@]}]}" "LD_PRELOAD=$work/shift.so")
}
# A year, a day, minutes behind, or right. A snapshot from the future would be the newest for long.
some_clock() { shift_by 0 0 -600 -86400 -31536000; }
# What makes no snapshots may also be ahead.
any_clock() { shift_by 0 -600 600 86400 -31536000 31536000; }

pause() { sleep "0.$(printf '%03d' $((RANDOM % $1)))"; }

gnodes=()
cleanup+=('[ ${#gnodes[@]} -eq 0 ] || { kill -KILL ${gnodes[@]}; wait ${gnodes[@]} 2> "$work/wait.log"; }')
begin_gnode() {
    any_clock
    "${shifted[@]}" "$larder" -q gnode --poll 1s --every 1s 2>> "$work/gnode.log" & gnodes[$1]=$!
}

# Ends a job of a round; anything but these exit codes is a failure.
ends_with() {
    local job=$1 code=0; shift
    wait "$job" 2>/dev/null || code=$?
    [[ " $* " == *" $code "* ]] || fail "a job ended with $code, and not with one of: $*"
}

storm() {
    local rounds=$1 source=$2 round job beside
    declare -A sums
    begin_gnode 0
    begin_gnode 1
    for round in $(seq "$rounds"); do
        # Something new each time, so that there is always something to upload.
        head -c 12000000 /dev/urandom > "$source/new"
        sums[r$round]=$(sha256sum < "$source/new")
        some_clock
        "${shifted[@]}" "$larder" -q backup --tag "r$round" "$source" & job=$!
        pause 900
        case $((round % 5)) in
            0) kill -STOP $job 2>/dev/null || true
               # Another job of the same series, and passes, run beside the frozen one.
               "$larder" -q backup --tag "r$round" "$source"
               any_clock
               # Others may be faster again and again.
               "${shifted[@]}" "$larder" -q optimize || [ $? -eq 11 ]
               kill -CONT $job 2>/dev/null || true
               ends_with $job 0 ;;
            1) kill -KILL $job 2>/dev/null || true
               ends_with $job 0 137 ;;
            2) kill -INT $job 2>/dev/null || true
               # It may have been done before the signal came.
               ends_with $job 0 130 ;;
            3) # Whoever runs is taken for dead: a backup then ends as fenced, or had committed before.
               kill -STOP $job 2>/dev/null || true
               sleep 1.1
               "$larder" -q optimize --dead-after 1s --task collect || [ $? -eq 11 ]
               kill -CONT $job 2>/dev/null || true
               ends_with $job 0 11 ;;
            4) # A pass is killed in the middle.
               any_clock
               "${shifted[@]}" "$larder" -q optimize & beside=$!
               pause 400
               kill -KILL $beside 2>/dev/null || true
               ends_with $beside 0 11 137
               ends_with $job 0 ;;
        esac
        kill -0 "${gnodes[0]}" "${gnodes[1]}" || fail "a G-node ended by itself: $(cat "$work/gnode.log")"
        kill -KILL "${gnodes[round % 2]}"; wait "${gnodes[round % 2]}" 2>/dev/null || true
        begin_gnode $((round % 2))
        if [ $((round % 3)) -eq 0 ]; then
            any_clock
            "${shifted[@]}" "$larder" -q forget --keep-last 4 --group-by series > "$work/forgotten"
        fi
    done
    "$larder" -q backup --tag last "$source"
    sums[last]=$(sha256sum < "$source/new")
    kill -TERM "${gnodes[@]}"
    # One that has just begun may not know yet what the signal means.
    ends_with "${gnodes[0]}" 0 143
    ends_with "${gnodes[1]}" 0 143
    gnodes=()
    # Two passes at once, then one that has time: of all that was killed nothing is left over.
    sleep 1.1
    "$larder" -q optimize --dead-after 1s & job=$!
    "$larder" -q optimize --dead-after 1s & beside=$!
    ends_with $job 0 11
    ends_with $beside 0 11
    "$larder" -q optimize --dead-after 1s --list-all
    "$larder" -q repair index --dry-run
    "$larder" check --read-data --json > "$work/checked"
    python3 - "$work/checked" <<'PY' || fail "$(cat "$work/checked")"
import json, sys
summary = [line for line in map(json.loads, open(sys.argv[1])) if line["message_type"] == "summary"][-1]
sys.exit(summary["unused_containers"])
PY
    "$larder" -q restore "latest:$source" --target "$work/restored"
    same "$source" "$work/restored"
    rm -rf "$work/restored"
    local id tag count=0
    while read -r id tag; do
        "$larder" -q dump "$id:$source/new" > "$work/dumped"
        [ "$(sha256sum < "$work/dumped")" = "${sums[$tag]}" ] || fail "snapshot $id of $tag is not what was backed up"
        count=$((count + 1))
    done < <("$larder" snapshots --json | python3 -c '
import json, sys
for snapshot in json.load(sys.stdin):
    for tag in snapshot.get("tags", []):
        print(snapshot["id"], tag)')
    [ "$count" -gt 2 ] || fail "only $count snapshots are left"
    echo "storm: $rounds rounds, $count snapshots are whole"
}
