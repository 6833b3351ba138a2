#!/usr/bin/env bash
# Makes a release from a clean checkout: builds both programs, packs them, does all of it again, and compares.
#
#   dist/release.sh VERSION [FOLDER]      FOLDER is target/dist unless named
#
# Two runs of the same commit with the same tools give the same bytes, wherever the checkout is. The second build takes as long
# as the first; LARDER_RELEASE_ONCE=1 leaves it out, for tries. LARDER_MINISIGN_KEY names a key that signs SHA256SUMS.
# LARDER_RELEASE_PROFILE names another profile than release, for tries.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
version=$1
folder=${2:-target/dist}
profile=${LARDER_RELEASE_PROFILE:-release}
declared=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ "$version" = "$declared" ] || { echo "Cargo.toml has version $declared, not $version" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || { echo "the checkout has changes that are not committed" >&2; exit 1; }
[ ! -e "$folder" ] || { echo "$folder exists" >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never
work=$(mktemp -d "${TMPDIR:-/tmp}/larder-release.XXXXXX")
trap 'rm -rf "$work"' EXIT

# round BUILD FOLDER: builds in one folder, and packs into the other.
round() (
    export CARGO_TARGET_DIR=$1
    # Neither the compilers of Rust nor those of C may leave the place of a file in the program.
    local from to cargo=${CARGO_HOME:-$HOME/.cargo}
    for pair in "$cargo=/cargo" "$PWD=/larder" "$CARGO_TARGET_DIR=/target"; do
        from=${pair%%=*} to=${pair#*=}
        RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$from=$to"
        CFLAGS="${CFLAGS:-} -ffile-prefix-map=$from=$to"
    done
    export RUSTFLAGS CFLAGS CXXFLAGS=$CFLAGS
    static=$(dist/static.sh "$profile" | tail -n 1)
    cargo build --quiet --locked --package larder --profile "$profile"
    dynamic=$CARGO_TARGET_DIR/$profile/larder
    [ "$profile" != dev ] || dynamic=$CARGO_TARGET_DIR/debug/larder
    [ "$("$static" version | cut -d ' ' -f 2)" = "$version" ]
    dist/package.sh "$version" "$static" "$dynamic" "$2"
)

round "$work/first" "$work/packages"
if [ -z "${LARDER_RELEASE_ONCE:-}" ]; then
    rm -rf "$work/first"
    round "$work/second" "$work/again"
    diff "$work/packages/SHA256SUMS" "$work/again/SHA256SUMS" || { echo "two builds of one commit differ" >&2; exit 1; }
fi
mkdir -p "$(dirname "$folder")"
cp -a "$work/packages" "$folder"
ls -l "$folder"
