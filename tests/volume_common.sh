# For the scripts of volumes: programs, servers, and devices over them. Sourced, not run.
#
# A device is a chain: NBD server, nbdfuse, a loop device. So file systems run over a volume without a kernel that has NBD.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# needs PROGRAM...: ends the script well where it cannot run.
needs() {
    local program
    for program; do command -v "$program" > /dev/null || { echo "skipped: $program is not installed"; exit 0; }; done
}
# `context` is a line for every failure.
context=
fail() { echo "FAILED: $*" >&2; [ -z "$context" ] || echo "$context" >&2; exit 1; }

# For scripts that mount.
needs_mounts() {
    needs nbdfuse losetup fusermount3 mkfs.ext4
    [ "$(id -u)" = 0 ] || { echo "skipped: mounts need root"; exit 0; }
    [ -w /dev/fuse ] && [ -e /dev/loop-control ] || { echo "skipped: there is no FUSE, or there are no loop devices"; exit 0; }
}

# build: the program and the examples that these scripts use. LARDER_BIN is a folder where they are already, and LARDER another binary.
build() {
    bin=${LARDER_BIN:-${CARGO_TARGET_DIR:-$root/target}/debug}
    # Of the whole workspace, as in common.sh: what the tests built is used again.
    [ -n "${LARDER_BIN:-}${LARDER_BUILT:-}" ] || cargo build --quiet --manifest-path "$root/Cargo.toml" --examples --bins
    larder=${LARDER:-$bin/larder} oracle=$bin/examples/flush_oracle log_writes=$bin/examples/log_writes
}

work=$(mktemp -d)
export LARDER_PASSWORD=secret LARDER_CACHE_DIR=$work/cache LARDER_STATE=$work/state
server= oracle_job=
on_exit() {
    local code=$? at
    [ -z "$server" ] || kill -9 "$server" 2> /dev/null || true
    [ -z "$oracle_job" ] || kill -9 "$oracle_job" 2> /dev/null || true
    # The last mount first. What a dead server leaves needs force.
    { findmnt -rno TARGET | grep "^$work/" || true; } | tac | while read -r at; do umount -l "$at" 2> /dev/null || true; done
    { losetup -nO NAME,BACK-FILE | grep " $work/" || true; } | while read -r at _; do losetup -d "$at" 2> /dev/null || true; done
    # KEEP is for a look at what failed.
    if [ "$code" != 0 ] && [ -n "${KEEP:-}" ]; then echo "kept: $work" >&2; else rm -rf --one-file-system "$work"; fi
}
trap on_exit EXIT

# serve STORE WORDS...: serves a store on $work/nbd, and sets `server`, and `first` to the event.
serve() {
    local store=$1; shift
    rm -f "$work/said"
    mkfifo "$work/said"
    "${preload[@]}" "$larder" --memory "${memory:-64M}" volume serve "$store" --nbd "unix:$work/nbd" --json "$@" \
        > "$work/said" 2> "$work/errors" &
    server=$!
    exec 8< "$work/said"
    read -r first <&8 || { cat "$work/errors"; fail "the server does not start"; }
}
preload=()

# stop: ends the server as a person would, and expects that it ends well.
stop() {
    kill "$server"
    wait "$server" || { cat "$work/errors"; fail "the server ended with $?"; }
    server=
}

# kill_server: as a crash would.
kill_server() {
    kill -9 "$server" 2> /dev/null || true
    { wait "$server" || true; } 2> /dev/null
    server=
}

uri() { echo "nbd+unix:///$1?socket=${2:-$work/nbd}"; }

# attach NAME URI [OPTION]: sets `device` to a loop device over an export, by nbdfuse.
attach() {
    local name=$1 uri=$2; shift 2
    mkdir -p "$work/fuse.$name"
    nbdfuse "$@" "$work/fuse.$name/device" "$uri" 2> "$work/nbdfuse.$name" &
    # It aborts when it is unmounted after its server died. Nobody needs a message about that.
    disown
    for _ in $(seq 500); do [ -e "$work/fuse.$name/device" ] && break; sleep 0.02; done
    [ -e "$work/fuse.$name/device" ] || { cat "$work/nbdfuse.$name"; fail "nbdfuse does not mount"; }
    attach_file "$work/fuse.$name/device"
}

# attach_file FILE: the same over a file.
attach_file() { device=$(losetup --find --show --direct-io=on "$1"); }

# detach_file DEVICE: the device may be in use for a moment longer.
detach_file() {
    losetup -d "$1"
    for _ in $(seq 500); do losetup "$1" > /dev/null 2>&1 || return 0; sleep 0.02; done
    fail "$1 stays in use"
}

# detach NAME DEVICE
detach() {
    detach_file "$2"
    for _ in $(seq 500); do fusermount3 -u "$work/fuse.$1" 2> /dev/null && return; sleep 0.02; done
    fail "nbdfuse of $1 stays in use"
}
