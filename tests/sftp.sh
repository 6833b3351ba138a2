#!/usr/bin/env bash
# A whole round and processes that die, in a folder behind a real SSH server on the loopback; and sessions that die under them.
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
AuthorizedKeysFile $ssh/user.pub
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
# Every call of the program has the settings that reach this server.
cat > "$work/larder" <<WRAPPER
#!/bin/sh
exec "$larder" -o "sftp.args=-i $ssh/user -o IdentitiesOnly=yes -o UserKnownHostsFile=$ssh/known -o StrictHostKeyChecking=accept-new" "\$@"
WRAPPER
chmod +x "$work/larder"
larder=$work/larder
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
