#!/usr/bin/env bash
# Volumes as iSCSI targets, by other programs: qemu-io and iscsi-test-cu through tgtd.
#
# The first test: SYNCHRONIZE CACHE arrives as a flush, and a flush survives a killed server. Then
# the families of iscsi-test-cu: it may fail only where tgtd fails over a plain file as well.
# Needs tgt, libiscsi-bin, qemu-utils with its iSCSI driver, FUSE and root; else it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in tgtd tgtadm iscsi-test-cu qemu-io; do
    command -v "$program" > /dev/null || { echo "skipped: $program is not installed"; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: tgtd needs root"; exit 0; }
[ -w /dev/fuse ] || { echo "skipped: there is no FUSE"; exit 0; }
[ -n "${LARDER_BUILT:-}" ] || cargo build --quiet --workspace --examples --bins
larder=${CARGO_TARGET_DIR:-target}/debug/larder
work=$(mktemp -d)
server= plain=
on_exit() {
    [ -z "$server" ] || kill -9 "$server" 2> /dev/null || true
    [ -z "$plain" ] || kill -9 "$plain" 2> /dev/null || true
    umount -l "$work/store/devices" 2> /dev/null || true
    rm -rf "$work" || true
}
trap on_exit EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

export LARDER_PASSWORD=secret
port=$(python3 -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
(umask 077 && echo "tester:correcthorse42" > "$work/chap")
"$larder" volume init "$work/store" --log 32MiB --insecure-kdf > /dev/null
"$larder" volume create "$work/store/disk" 100MiB > /dev/null

# start: serves, and sets `target` and `uri`.
start() {
    mkfifo "$work/said"
    "$larder" volume serve "$work/store" --nbd "unix:$work/nbd" --iscsi "127.0.0.1:$port" --chap "$work/chap" --json \
        > "$work/said" 2> "$work/errors" &
    server=$!
    read -r first < "$work/said" || { cat "$work/errors"; fail "the server does not start"; }
    rm "$work/said"
    target=$(python3 -c "import json, sys; print(json.loads(sys.argv[1])['exports'][0]['target'])" "$first")
    uri="iscsi://tester%correcthorse42@127.0.0.1:$port/$target/1"
}
# stop: ends the server as a person would, and expects that it ends well.
stop() {
    kill "$server"
    wait "$server" || fail "the server ended with $?"
    server=
    ! mountpoint -q "$work/store/devices" || fail "a mount is left behind"
    ! pgrep -f "portal=127.0.0.1:$port" > /dev/null || fail "tgtd is left behind"
}
# count NAME: a number of the server.
count() {
    "$larder" volume stats "$work/store" --json | python3 -c "import json, sys; print(json.load(sys.stdin)['requests'][sys.argv[1]])" "$1"
}
io() { qemu-io -f raw "$@" "$uri" > "$work/io" 2>&1 && ! grep -qi 'failed\|error' "$work/io" || { cat "$work/io"; fail "qemu-io $*"; }; }

echo "== SYNCHRONIZE CACHE is a flush, and UNMAP a discard"
start
io -c 'write -P 0x11 0 1M'
before=$(count flushes)
io -c 'write -P 0x22 1M 1M' -c flush
[ "$(count flushes)" -gt "$before" ] || fail "SYNCHRONIZE CACHE is no flush"
kill -9 "$server"
{ wait "$server" || true; } 2> /dev/null
for _ in $(seq 200); do pgrep -f "portal=127.0.0.1:$port" > /dev/null || break; sleep 0.05; done
! pgrep -f "portal=127.0.0.1:$port" > /dev/null || fail "tgtd outlives a killed server"
start
io -c 'read -P 0x11 0 1M' -c 'read -P 0x22 1M 1M'
before=$(count discards)
io -d unmap -c 'discard 1M 1M' -c 'read -P 0 1M 1M' -c 'read -P 0x11 0 1M'
[ "$(count discards)" -gt "$before" ] || fail "UNMAP is no discard"
io -d unmap -c 'write -z -u 0 512k' -c 'read -P 0 0 512k' -c 'read -P 0x11 512k 512k'

echo "== passwords and other volumes"
! qemu-io -f raw -c 'read 0 512' "iscsi://127.0.0.1:$port/$target/1" > /dev/null 2>&1 || fail "served without a password"
! qemu-io -f raw -c 'read 0 512' "iscsi://tester%wronghorse42@127.0.0.1:$port/$target/1" > /dev/null 2>&1 \
    || fail "served with a wrong password"
"$larder" volume create "$work/store/more" 1MiB > /dev/null
other=${target%disk}more
qemu-io -f raw -c 'write -P 7 0 512' -c 'read -P 7 0 512' "iscsi://tester%correcthorse42@127.0.0.1:$port/$other/1" > /dev/null \
    || fail "a volume that was created meanwhile"

echo "== iscsi-test-cu"
# The same target over a plain file, for what tgtd itself fails.
truncate -s 100M "$work/file"
other_port=$(python3 -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
TGT_IPC_SOCKET="$work/tgtd" tgtd -f --iscsi "portal=127.0.0.1:$other_port" > /dev/null 2>&1 &
plain=$!
adm() { TGT_IPC_SOCKET="$work/tgtd" tgtadm --lld iscsi "$@"; }
for _ in $(seq 200); do adm --mode system --op show > /dev/null 2>&1 && break; sleep 0.05; done
adm --mode target --op new --tid 1 --targetname iqn.2026-01.test:plain
adm --mode logicalunit --op new --tid 1 --lun 1 --bstype rdwr --backing-store "$work/file"
adm --mode logicalunit --op update --tid 1 --lun 1 --params thin_provisioning=1
adm --mode target --op bind --tid 1 --initiator-address ALL
families="ALL.Read6 ALL.Read10 ALL.Read12 ALL.Read16 ALL.Write10 ALL.Write12 ALL.Write16 ALL.Unmap ALL.WriteSame10
    ALL.WriteSame16 ALL.WriteVerify10 ALL.ReadCapacity16 ALL.Inquiry ALL.TestUnitReady ALL.Verify10 ALL.CompareAndWrite
    ALL.OrWrite ALL.Prefetch10 ALL.Mandatory ALL.ProutRegister ALL.ReadDefectData10"
# tests URI FILE: runs all families, and lists the tests that pass.
tests() {
    : > "$2"
    for family in $families; do
        timeout 120 iscsi-test-cu --dataloss --test="$family" "$1" > "$work/cu" 2>&1 || true
        sed -n "s/^ *Test: \([^ ]*\).*passed.*/$family.\1/p" "$work/cu" >> "$2"
    done
    sort -o "$2" "$2"
}
tests "iscsi://127.0.0.1:$other_port/iqn.2026-01.test:plain/1" "$work/passed-plain"
tests "$uri" "$work/passed"
comm -23 "$work/passed-plain" "$work/passed" > "$work/worse"
[ ! -s "$work/worse" ] || { cat "$work/worse"; fail "these tests pass over a plain file"; }
[ "$(wc -l < "$work/passed")" -ge 40 ] || { cat "$work/passed"; fail "few tests ran"; }
echo "$(wc -l < "$work/passed") tests of iscsi-test-cu pass, as over a plain file"
kill -9 "$plain"
{ wait "$plain" || true; } 2> /dev/null
plain=

stop
"$larder" volume check "$work/store" --read-data > /dev/null || fail "the store is damaged"
echo "passed"
