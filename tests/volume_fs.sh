#!/usr/bin/env bash
# Real file systems on a served volume: ext4, xfs and btrfs.
#
#   tests/volume_fs.sh [FILE_SYSTEM...]
#
# Each is on a loop device, once over nbdfuse and NBD, and once over the file of --mount-file. fsx, fio and stress-ng write to it, and
# git clones a repository. In the middle a snapshot is made. At the end the file system and the one of the snapshot are clean, and
# every file is what it was. The server is killed once while the file system is in use.
source "$(dirname "$0")/volume_common.sh"
needs_mounts
needs fio git python3 nbdcopy
build
mountpoint=$work/mnt
mkdir "$mountpoint"
store=$work/store
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(ext4 xfs btrfs)

# A repository to clone: this one, or a small one if the sources are no clone.
origin=$root
if ! git -C "$root" rev-parse --git-dir > /dev/null 2>&1; then
    origin=$work/origin
    git init -q "$origin"
    cp -r "$root/docs" "$root/tests" "$origin"
    git -C "$origin" add . && git -C "$origin" -c user.name=t -c user.email=t@example.com commit -qm all
fi

# clean FILE_SYSTEM DEVICE: the file system has no errors.
clean() {
    case $1 in
        ext4) e2fsck -fn "$2" ;;
        xfs) xfs_repair -n "$2" ;;
        btrfs) btrfs check --readonly "$2" ;;
    esac > "$work/fsck" 2>&1 || { cat "$work/fsck"; fail "$1 is damaged"; }
}

# ext4 discards what it frees at once, the others by fstrim.
options() { case $1 in ext4) echo discard ;; *) echo defaults ;; esac }

# sums FOLDER: the names and contents of all files.
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 -r sha256sum); }

# attach_volume DOOR NAME: sets `device`.
attach_volume() {
    case $1 in
        nbdfuse) attach "$2" "$(uri "$2")" ;;
        mount-file) attach_file "$work/files/$2" ;;
    esac
}
detach_volume() {
    case $1 in
        nbdfuse) detach "$2" "$device" ;;
        mount-file) detach_file "$device" ;;
    esac
}
serve_volume() {
    case $1 in
        nbdfuse) serve "$store" ;;
        mount-file) serve "$store" --mount-file "$work/files" ;;
    esac
}

# fio_verify FOLDER SEED: random writes with syncs, which are read back and compared.
fio_verify() {
    fio --name=verify --directory="$1" --rw=randwrite --bsrange=512-64k --bs_unaligned --size=24M --numjobs=2 --iodepth=8 \
        --fsync=24 --randseed="$2" --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0 --group_reporting \
        > "$work/fio" 2>&1 || { cat "$work/fio"; fail "fio"; }
}

# use FILE_SYSTEM NAME: everything that a person might do, with a snapshot meanwhile.
use() {
    if command -v fsx > /dev/null; then
        fsx -q -S "$RANDOM" -N "${FSX_STEPS:-2000}" "$mountpoint/fsx" > "$work/fsx" 2>&1 || { tail -50 "$work/fsx"; fail "fsx on $1"; }
    fi
    git clone -q --no-hardlinks "$origin" "$mountpoint/clone"
    git -C "$mountpoint/clone" fsck --full > "$work/git" 2>&1 || { cat "$work/git"; fail "git fsck on $1"; }
    sync -f "$mountpoint"
    sums "$mountpoint/clone" > "$work/clone.sums"
    mkdir "$mountpoint/fio" "$mountpoint/stress"
    fio_verify "$mountpoint/fio" 1 & local writing=$!
    "$larder" volume snapshot "$store/$2@middle" > /dev/null
    if command -v stress-ng > /dev/null; then
        stress-ng --temp-path "$mountpoint/stress" --hdd 1 --hdd-bytes 16M --fallocate 1 --fallocate-bytes 16M --rename 1 \
            --dentry 1 --dentries 500 --iomix 1 --iomix-bytes 16M --seek 1 --seek-size 16M --copy-file 1 --copy-file-bytes 128M --timeout "${STRESS_SECONDS:-6}" --verify \
            > "$work/stress" 2>&1 || { cat "$work/stress"; fail "stress-ng on $1"; }
    fi
    wait "$writing" || fail "fio on $1"
    # Files that come and go, and space that is given back.
    cp -r "$mountpoint/clone" "$mountpoint/second"
    rm -rf "$mountpoint/second/.git"
    fstrim "$mountpoint" 2> /dev/null || true
    sync -f "$mountpoint"
    sums "$mountpoint" > "$work/all.sums"
}

# try FILE_SYSTEM DOOR
try() {
    local system=$1 door=$2 name=$1-$2
    context="$system over $door"
    "$larder" volume create "$store/$name" 768MiB > /dev/null
    serve_volume "$door"
    attach_volume "$door" "$name"
    "mkfs.$system" -q "$device" > "$work/mkfs" 2>&1 || { cat "$work/mkfs"; fail "mkfs.$system"; }
    mount -o "$(options "$system")" "$device" "$mountpoint"
    use "$system" "$name"
    umount "$mountpoint"
    clean "$system" "$device"
    detach_volume "$door" "$name"
    stop
    # After a restart all of it is there. Then the server dies under a file system that has synced.
    serve_volume "$door"
    attach_volume "$door" "$name"
    clean "$system" "$device"
    mount "$device" "$mountpoint"
    sums "$mountpoint" | cmp - "$work/all.sums" || fail "$context: files changed"
    cp -r "$mountpoint/clone/docs" "$mountpoint/kept" 2> /dev/null || cp -r "$mountpoint/clone" "$mountpoint/kept"
    sync -f "$mountpoint"
    (cd "$mountpoint" && sums kept) > "$work/kept.sums"
    dd if=/dev/urandom of="$mountpoint/unsynced" bs=1M count=4 2> /dev/null
    kill_server
    umount "$mountpoint" 2> /dev/null || umount -l "$mountpoint"
    if [ "$door" = nbdfuse ]; then
        detach "$name" "$device"
    else
        detach_file "$device"
        umount "$work/files"
    fi
    # What the dead device had is gone. The new one begins with the journal.
    serve_volume "$door"
    attach_volume "$door" "$name"
    mount "$device" "$mountpoint"
    (cd "$mountpoint" && sums kept) | cmp - "$work/kept.sums" || fail "$context: synced files were lost by a kill"
    umount "$mountpoint"
    clean "$system" "$device"
    detach_volume "$door" "$name"
    # The snapshot, as a copy that the file system may recover.
    nbdcopy "$(uri "$name@middle")" "$work/middle"
    stop
    device=$(losetup --find --show "$work/middle")
    mount "$device" "$mountpoint"
    sums "$mountpoint/clone" | cmp - "$work/clone.sums" || fail "$context: the snapshot has other files"
    umount "$mountpoint"
    clean "$system" "$device"
    detach_file "$device"
    rm "$work/middle"
    "$larder" volume delete "$store/$name" --snapshots > /dev/null
    echo "$system over $door: clean"
}

"$larder" volume init "$store" --log 64MiB --insecure-kdf > /dev/null
memory=128M
done=0
for system in "${wanted[@]}"; do
    case $system in ext4) checker=e2fsck ;; xfs) checker=xfs_repair ;; *) checker=btrfs ;; esac
    if ! command -v "mkfs.$system" > /dev/null || ! command -v $checker > /dev/null; then
        echo "skipped: $system has no tools here"
        continue
    fi
    for door in nbdfuse mount-file; do
        try "$system" $door
        done=$((done + 1))
    done
    # Most of it is garbage now.
    "$larder" volume collect "$store" > /dev/null
    "$larder" volume check "$store" --read-data > "$work/checked" 2>&1 || { cat "$work/checked"; fail "the store is damaged"; }
done
for program in fsx stress-ng; do command -v $program > /dev/null || echo "without $program, which is not installed"; done
echo "volume_fs: $done file systems, all clean"
