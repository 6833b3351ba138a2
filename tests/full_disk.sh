#!/usr/bin/env bash
# The repository's disk fills up in the middle of a backup, and the target's in the middle of a restore: a clear error with its
# exit code, nothing committed is lost, reading commands work on the full disk, and both succeed once there is room.
#
# Needs root, for a small file system of its own.
source "$(dirname "$0")/common.sh"
if [ "$(id -u)" -ne 0 ]; then
    echo "full_disk: skipped, it needs root to mount a small file system"
    exit 0
fi
mkdir "$work/small"
mount -t tmpfs -o size=48m tmpfs "$work/small"
cleanup+=('umount "$work/small"')
export LARDER_REPOSITORY=$work/small/repository
"$larder" -q init --insecure-kdf
mkdir "$work/source"
head -c 15000000 /dev/urandom > "$work/source/a"
"$larder" -q backup "$work/source"
cp -a "$work/source" "$work/first"

head -c 60000000 /dev/urandom > "$work/source/b"
for round in 1 2; do
    code=0
    "$larder" -q backup "$work/source" 2> "$work/error" || code=$?
    [ $code -eq 16 ] || fail "a full disk ended the backup with $code instead of 16: $(cat "$work/error")"
    grep -qi "space" "$work/error" || fail "the message does not speak of space: $(cat "$work/error")"
done
# Full to the last byte, so that not even a lease can be written.
dd if=/dev/zero of="$work/small/filler" bs=4k 2>/dev/null || true
[ "$("$larder" snapshots --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')" = 1 ] || fail "one version expected"
"$larder" ls latest > /dev/null
"$larder" -q check --read-data
"$larder" -q restore "latest:$work/source" --target "$work/restored"
same "$work/first" "$work/restored"

# There is room again.
umount "$work/small.x" 2>/dev/null || true
rm "$work/small/filler"
mount -o remount,size=200m "$work/small"
"$larder" -q backup "$work/source"
"$larder" -q check --read-data
rm -rf "$work/restored"
"$larder" -q restore "latest:$work/source" --target "$work/restored"
same "$work/source" "$work/restored"

# A target without room.
mkdir "$work/target"
mount -t tmpfs -o size=20m tmpfs "$work/target"
cleanup+=('umount "$work/target"')
code=0
"$larder" -q restore "latest:$work/source" --target "$work/target" 2> "$work/error" || code=$?
[ $code -ne 0 ] || fail "a restore onto a full disk cannot succeed"
grep -qi "space" "$work/error" || fail "the message does not speak of space: $(cat "$work/error")"
mount -o remount,size=200m "$work/target"
"$larder" -q restore "latest:$work/source" --target "$work/target"
same "$work/source" "$work/target"
echo "full_disk: everything whole"
