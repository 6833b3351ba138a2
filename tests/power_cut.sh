#!/usr/bin/env bash
# The power fails under a served volume store, on a real file system.
#
#   tests/power_cut.sh [CUTS] [SEED] [FILE_SYSTEM]
#
# The store is on ext4 (or xfs or btrfs), on a loop device, over nbdfuse, on a device that writes down every change (`log_writes`). Four connections
# write to a volume, with flushes, snapshots, deletions and collections. For each cut, the disk is made as it could be when the power
# failed there: all up to the last flush, and some sectors of what came later. ext4 replays its journal, the real program opens the
# store, and nothing that was acknowledged as flushed before the cut may be missing. In every fourth case the power also fails
# during this recovery.
#
# WITHOUT_SYNC=1 lets the server's syncs do nothing. Then the test must fail: this shows that it can.
source "$(dirname "$0")/volume_common.sh"
cuts=${1:-40} seed=${2:-$RANDOM} system=${3:-ext4}
# ext4 lives with torn blocks, except its superblock. xfs and btrfs expect that a disk writes 4 KiB as a whole.
unit=512
[ "$system" = ext4 ] || unit=4096
needs_mounts
needs "mkfs.$system" e2fsck cc
build
echo "seed $seed"
mountpoint=$work/mnt
mkdir "$mountpoint"
size=$((768 << 20))

if [ -n "${WITHOUT_SYNC:-}" ]; then
    echo 'int fsync(int file) { (void)file; return 0; } int fdatasync(int file) { (void)file; return 0; }' > "$work/sync.c"
    cc -shared -fPIC -o "$work/sync.so" "$work/sync.c"
    preload=(env "LD_PRELOAD=$work/sync.so")
fi

# begin_device FILE LOG: a loop device over FILE, whose changes go to LOG.
begin_device() {
    rm -f "$work/end" "$work/device.said"
    mkfifo "$work/end"
    "$log_writes" serve "$1" "$2" "$work/device.sock" < "$work/end" > "$work/device.said" & device_job=$!
    exec 9> "$work/end"
    for _ in $(seq 500); do [ -s "$work/device.said" ] && break; sleep 0.02; done
    attach logged "$(uri disk "$work/device.sock")"
}
end_device() {
    detach logged "$device"
    exec 9>&-
    wait "$device_job" || fail "log_writes ended with $?"
}
log_length() { stat -c %s "$1"; }

truncate -s $size "$work/disk"
begin_device "$work/disk" "$work/log"
"mkfs.$system" -q "$device" > "$work/mkfs" 2>&1 || { cat "$work/mkfs"; fail "mkfs.$system"; }
mount -o discard "$device" "$mountpoint"
store=$mountpoint/store
"$larder" volume init "$store" --log 32MiB --insecure-kdf > /dev/null
"$larder" volume create "$store/disk" 24MiB > /dev/null
sync -f "$mountpoint"
from=$(log_length "$work/log")
serve "$store"
"$oracle" write "$work/nbd" disk "$store/control" "$seed" "${STEPS:-6000}" "$work/events" "$work/log" || fail "the writer"
kill_server
umount "$mountpoint"
end_device
rm "$work/disk"
echo "$(log_length "$work/log") bytes of log, $(grep -c '^flushed' "$work/events") flushes, $(grep -c '^made' "$work/events") snapshots"

# mount_system DEVICE OPTIONS: a torn superblock of ext4 has two sectors of different times, and only e2fsck mends its checksum. That is
# no fault of the store.
torn=0
mount_system() {
    mount -o "$2" "$1" "$mountpoint" 2> "$work/mounted" && return
    local code=0
    [ "$system" = ext4 ] || { cat "$work/mounted"; fail "$system cannot be mounted"; }
    e2fsck -fy "$1" > "$work/fsck" 2>&1 || code=$?
    [ $code -le 1 ] || { cat "$work/mounted" "$work/fsck"; fail "ext4 cannot be mounted"; }
    torn=$((torn + 1))
    mount -o "$2" "$1" "$mountpoint" || fail "ext4 cannot be mounted"
}

# examine IMAGE CUT: mounts the image, opens the store, and compares it with what was flushed before the cut.
examine() {
    mount_system "$1" loop
    memory=32M
    serve "$store"
    "$oracle" verify "$work/nbd" disk "$work/events" "$2" > "$work/compared" || fail "cut $2: $(cat "$work/compared")"
    stop
    "$larder" --memory 64M volume check "$store" --read-data > "$work/checked" 2>&1 || { cat "$work/checked"; fail "damage after cut $2"; }
    umount "$mountpoint"
    local check=(e2fsck -fn)
    case $system in xfs) check=(xfs_repair -f -n) ;; btrfs) check=(btrfs check --readonly) ;; esac
    "${check[@]}" "$1" > "$work/fsck" 2>&1 || { cat "$work/fsck"; fail "$system is damaged after cut $2"; }
}

# recover IMAGE LOG: mounts the image over a device with a log, and lets the server recover there until it is killed.
recover() {
    begin_device "$1" "$2"
    mount_system "$device" discard
    memory=32M
    serve "$store"
    [ $((RANDOM % 3)) = 0 ] && "$larder" volume collect "$store" > /dev/null
    kill_server
    umount "$mountpoint"
    end_device
}

preload=()
RANDOM=$seed
turn=0 again=0
truncate -s $size "$work/base"
while read -r cut <&5; do
    turn=$((turn + 1))
    "$log_writes" cut "$work/log" "$work/base" "$cut" "$((seed * 100000 + turn))" $unit "$work/image" \
        > "$work/cut.said"
    if [ $((turn % 4)) = 0 ]; then
        again=$((again + 1))
        cp --sparse=always "$work/image" "$work/second"
        rm -f "$work/second.log" "$work/second.position"
        recover "$work/image" "$work/second.log"
        second=$("$log_writes" cuts "$work/second.log" 0 1 "$((seed + turn))")
        "$log_writes" cut "$work/second.log" "$work/second" "$second" "$((seed * 100000 + turn))" $unit "$work/image" \
            >> "$work/cut.said"
    fi
    context="turn $turn of seed $seed: $(cat "$work/cut.said")"
    examine "$work/image" "$cut"
    [ $((turn % 20)) != 0 ] || echo "$turn cuts, $again with a second one"
done 5< <("$log_writes" cuts "$work/log" "$from" "$cuts" "$seed")
echo "power_cut: $turn cuts, $again of them with a second one during recovery; nothing flushed was lost" \
    "($torn torn superblocks)"
