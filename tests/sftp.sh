#!/usr/bin/env bash
# A whole round and processes that die, in a folder behind a real SSH server on the loopback; and sessions that die under them. Then a
# machine whose key runs `larder serve-sftp --append-only` there.
#
#   tests/sftp.sh [ROUNDS]
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/round.sh"
source "$(dirname "$0")/storm.sh"
daemon=$(command -v sshd || echo /usr/sbin/sshd)
if [ ! -x "$daemon" ] || [ "$(id -u)" -ne 0 ]; then
    echo "sftp: skipped, because it needs sshd and root"
    exit 0
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ssh=$work/ssh
mkdir -p "$ssh" /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$ssh/host"
ssh-keygen -q -t ed25519 -N '' -f "$ssh/user"
cat > "$ssh/config" <<CONFIG
Port $port
ListenAddress 127.0.0.1
HostKey $ssh/host
AuthorizedKeysFile $ssh/user.pub $ssh/forced
PidFile $ssh/pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp internal-sftp
CONFIG
"$daemon" -D -e -f "$ssh/config" 2> "$ssh/log" & server=$!
cleanup+=("kill $server")
# with_key KEY: writes a program of this name, whose calls have the settings that reach this server.
program=$larder
settings="-o IdentitiesOnly=yes -o UserKnownHostsFile=$ssh/known -o StrictHostKeyChecking=accept-new"
with_key() {
    printf '#!/bin/sh\nexec "%s" -o "sftp.args=-i %s %s" "$@"\n' "$program" "$ssh/$1" "$settings" > "$work/larder-$1"
    chmod +x "$work/larder-$1"
}
with_key user
larder=$work/larder-user
export LARDER_REPOSITORY=sftp://$(id -un)@127.0.0.1:$port/$work/served/repository
for _ in $(seq 100); do
    "$larder" -q --timeout 1 validate-store "$LARDER_REPOSITORY-first" > /dev/null 2>&1 && break
    sleep 0.1
done
validated
tree "$work/source" 5
round "$work/source"
storm "${1:-6}" "$work/source"

# Sessions die under a backup; it continues over new ones.
killed=0
for round in 1 2 3; do
    head -c 60000000 /dev/urandom > "$work/source/random$round"
    "$larder" -q backup "$work/source" & job=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 4 + 1))"
        pkill -KILL -P $server && killed=$((killed + 1)) || true
    done
    wait $job || fail "a backup ended when its sessions were killed"
done
[ $killed -gt 0 ] || fail "no session was killed"
"$larder" -q check --read-data
restored latest "$work/source"
# Those of the storm had wrong clocks, so they count for no rule. They are forgotten by their ids.
mapfile -t wrong < <("$larder" snapshots --json | python3 -c '
import json, sys
print(*(snapshot["id"] for snapshot in json.load(sys.stdin) if snapshot.get("tags")), sep="\n")')
"$larder" -q forget "${wrong[@]}"
forgotten "$work/source"

# By the line of the guide (docs/guide/storage.md): the key of a machine runs one program, which deletes nothing.
append_only_server() {
    local source=$work/machine larder=$work/larder-machine kept=$work/kept code=0 killed=0 job session
    local -x LARDER_REPOSITORY=sftp://$(id -un)@127.0.0.1:$port//web1
    ssh-keygen -q -t ed25519 -N '' -f "$ssh/machine"
    echo "command=\"$program serve-sftp $kept --append-only\",restrict $(cat "$ssh/machine.pub")" > "$ssh/forced"
    with_key machine
    tree "$source" 6
    "$larder" -q init --insecure-kdf
    "$larder" -q backup "$source"
    head -c 60000000 /dev/urandom > "$source/random"
    "$larder" -q backup "$source" & job=$!
    # The program of a session dies whenever it has something under way.
    while [ $killed -lt 3 ] && kill -0 $job 2> /dev/null; do
        sleep 0.02
        [ -n "$(find "$kept" -path '*/.staging-sftp/*' -type f 2> /dev/null)" ] || continue
        for session in $(pgrep -f "^$program serve-sftp $kept"); do
            kill -KILL "$session" 2> /dev/null && killed=$((killed + 1))
        done
        sleep 0.2
    done
    wait $job || fail "a backup ended when the programs of its sessions were killed"
    [ $killed -gt 0 ] || fail "no program of a session was killed"
    "$larder" -q check --read-data
    restored latest "$source"
    stored() { (cd "$kept" && find . -name .staging-sftp -prune -o -type f -exec sha256sum {} + | sort); }
    stored > "$work/before"
    "$larder" -q forget --keep-last 1 --prune --min-age 0s 2> "$work/error" || code=$?
    [ $code -eq 14 ] && grep -q append-only "$work/error" || fail "a deletion ended with $code: $(cat "$work/error")"
    # The client of OpenSSH can delete as little, and the key gives no shell.
    # shellcheck disable=SC2086
    ! echo "rm /web1/config" | sftp -q -b - -i "$ssh/machine" $settings -P "$port" "$(id -un)@127.0.0.1" > "$work/answer" 2>&1 ||
        fail "sftp deleted an object: $(cat "$work/answer")"
    # shellcheck disable=SC2086
    ! ssh -i "$ssh/machine" $settings -p "$port" "$(id -un)@127.0.0.1" id < /dev/null 2>&1 | grep uid= || fail "the key gives a shell"
    stored > "$work/after"
    [ -z "$(comm -23 "$work/before" "$work/after")" ] || fail "objects are gone: $(comm -23 "$work/before" "$work/after")"
    # Passes run there, on the folder. Both snapshots are in one series.
    "$program" -q -r "$kept/web1" forget --keep-last 1 --prune
    "$larder" -q check --read-data
    restored latest "$source"
    echo "append-only: $killed sessions killed, nothing deleted"
}
append_only_server

# Another key, and no server: errors that say so, and no hang.
code=0
"${larder}" -q -o "sftp.args=-i $ssh/host -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile=$ssh/known" snapshots 2> "$work/error" || code=$?
[ $code -eq 15 ] && grep -q "Permission denied" "$work/error" || fail "a wrong key ended with $code: $(cat "$work/error")"
kill $server; wait $server 2> /dev/null || true
cleanup=()
code=0
"$larder" -q --timeout 3 snapshots 2> "$work/error" || code=$?
[ $code -eq 15 ] && grep -q "Connection refused" "$work/error" || fail "an absent server ended with $code: $(cat "$work/error")"
echo "sftp: everything whole"
