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

# A pass succeeds on a disk that a failed backup has filled, once there is room for its own objects: it frees what that backup left.
rm "$work/small/filler"
before=$(du -sb "$LARDER_REPOSITORY" | cut -f 1)
"$larder" -q optimize --min-age 0
[ "$(du -sb "$LARDER_REPOSITORY" | cut -f 1)" -lt "$before" ] || fail "a pass freed nothing of the failed backups ($before bytes)"
"$larder" -q check --read-data

# There is room again.
umount "$work/small.x" 2>/dev/null || true
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

# The folder for temporary files of a batch is full. The message names host, image, stage, folder and bytes; what was committed
# stays; and once there is room, the next batch goes on with what was uploaded. The second round of a plan may fit where the first
# does not.
fleet=$work/fleet
mkdir -p "$fleet/cache/scratch"
mount -t tmpfs -o size=96k tmpfs "$fleet/cache/scratch"
cleanup+=('umount "$fleet/cache/scratch"')
export LARDER_REPOSITORY=$fleet/repository
"$larder" -q init --insecure-kdf
head -c 1000000 /dev/urandom > "$fleet/small.raw"
head -c 60000000 /dev/urandom > "$fleet/large.raw"
cat > "$fleet/small.toml" <<< $'[[image]]\nsource = "small.raw"'
cat > "$fleet/images.toml" <<< $'[[image]]\nsource = "large.raw"\n[[image]]\nsource = "small.raw"\nname = "other"'
batch() { "$larder" -q --cache-dir "$fleet/cache" fleet "$@"; }
is_named() {
    for word in "host $1" "image large" "(stage store)" "$fleet/cache/scratch" "MiB are needed" "make room there"; do
        grep -qF "$word" "$work/error" || fail "a full folder for temporary files: no '$word' in $(cat "$work/error")"
    done
}
count() { "$larder" snapshots --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))'; }
batch run "$fleet/small.toml"
for options in "" "--queue store"; do
    code=0
    # shellcheck disable=SC2086 # a list of options
    batch run "$fleet/images.toml" --no-pass $options 2> "$work/error" || code=$?
    [ $code -eq 16 ] || fail "a full folder for temporary files ended the batch with $code instead of 16: $(cat "$work/error")"
    is_named "$(hostname)"
    [ "$(count)" = 1 ] || fail "one snapshot expected"
done
# A worker of another host: its images are named, and the others are saved.
cat > "$fleet/hosts.toml" <<< $'[[image]]\nsource = "large.raw"\nhost = "full"\n[[image]]\nsource = "small.raw"\nname = "other"'
batch work "$fleet/hosts.toml" --host full --once 2> /dev/null & worker=$!
code=0
"$larder" -q fleet run "$fleet/hosts.toml" --queue store --no-pass 2> "$work/error" || code=$?
[ $code -eq 3 ] || fail "one image of two was not saved, and the exit code is $code: $(cat "$work/error")"
code=0; wait $worker || code=$?
[ $code -eq 16 ] || fail "the worker ended with $code instead of 16"
is_named full
[ "$(count)" = 2 ] || fail "two snapshots expected"
# The larger image is in the first round, and the second one has room.
code=0
batch run "$fleet/images.toml" --no-pass --rounds 2 2> "$work/error" || code=$?
[ $code -eq 3 ] || fail "the second round was not saved: $code: $(cat "$work/error")"
is_named "$(hostname)"
"$larder" -q check --read-data
mount -o remount,size=20m "$fleet/cache/scratch"
batch run "$fleet/images.toml" --json > "$work/report"
python3 - "$work/report" <<'EOF'
import json, sys
images = [line for line in map(json.loads, open(sys.argv[1])) if line["message_type"] == "fleet_image"]
assert len(images) == 2 and all("snapshot_id" in image for image in images), images
EOF
"$larder" dump "latest:$fleet/large.raw" --series vm/large | cmp - "$fleet/large.raw" || fail "the large image differs"
"$larder" -q check --read-data
echo "full_disk: everything whole"
