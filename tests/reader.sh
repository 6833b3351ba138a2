#!/usr/bin/env bash
# The independent reader (tools/larder_read.py) restores the golden repository, and one written just now.
source "$(dirname "$0")/common.sh"
python3 "$root/tests/golden/check.py"
export LARDER_REPOSITORY=$work/repository
"$larder" -q init --insecure-kdf
tree "$work/source" 4
# Scattered changes of a large file, so that segments are differences of differences.
head -c 1048576 /dev/urandom > "$work/source/large"
for version in 1 2 3 4; do
    for place in 1 70 150; do
        head -c 4096 /dev/urandom | dd of="$work/source/large" bs=4096 seek=$((place + version * 10)) conv=notrunc status=none
    done
    "$larder" -q backup "$work/source"
done
# By password, by the paper key alone, and by key files that may read contents.
"$larder" -q key export --output "$work/paper"
for role in restore all; do "$larder" -q key add --role "$role" --file "$work/$role.key"; done
read_by() {
    rm -rf "$work/restored"
    env -u LARDER_PASSWORD "$@" python3 "$root/tools/larder_read.py" "$work/repository" restore latest "$work/restored"
    diff -r --no-dereference "$work/source" "$work/restored$work/source"
}
read_by LARDER_PASSWORD="$LARDER_PASSWORD"
read_by LARDER_PAPER_KEY="$work/paper"
read_by LARDER_KEY_FILE="$work/restore.key"
read_by LARDER_KEY_FILE="$work/all.key"
# A key that may back up only opens no contents.
"$larder" -q key add --role backup --domain elsewhere --file "$work/backup.key"
! read_by LARDER_KEY_FILE="$work/backup.key" > /dev/null 2>&1 || fail "a backup key restored"
echo "reader: both repositories read, by every kind of key"
