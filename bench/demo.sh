#!/usr/bin/env bash
# Backs up a real folder into a local repository, restores it, and compares. No server, nothing left behind.
#
#   bench/demo.sh [FOLDER]        default: the folder of the Rust toolchain
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:-$(rustc --print sysroot)}")
cargo build --release --quiet --package larder
larder=${CARGO_TARGET_DIR:-target}/release/larder
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LARDER_REPOSITORY=$work/repository LARDER_PASSWORD=demo LARDER_STATE=$work/state
"$larder" init
"$larder" backup "$folder"
"$larder" backup "$folder"
"$larder" snapshots
"$larder" restore "latest:$folder" --target "$work/restored"
diff -r --no-dereference "$folder" "$work/restored"
"$larder" check --read-data
echo "Restored $folder byte for byte."
