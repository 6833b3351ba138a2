#!/usr/bin/env bash
# Builds `larder` as one static file, which runs on any Linux of this machine's architecture, also
# in an empty container. Prints the path of the file as its last line.
#
#   dist/static.sh [PROFILE]      PROFILE is release unless named (tests use dev)
#
# The program then knows owners of /etc/passwd and /etc/group only: glibc loads directory services
# (LDAP, SSSD) from shared libraries, which a static program cannot use.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
machine=$(uname -m)
target=$machine-unknown-linux-gnu
folder=${CARGO_TARGET_DIR:-$PWD/target}/$target/$profile
[ "$profile" != dev ] || folder=${folder%/dev}/debug

# A target by name keeps the flags away from build scripts, which have to load shared libraries.
# Cargo adds them to those of .cargo/config.toml. Flags of the environment would replace both.
env -u RUSTFLAGS cargo build --quiet --locked --package larder --profile "$profile" --target "$target" \
    --config "target.$target.rustflags = ['-C', 'target-feature=+crt-static']"

file=$folder/larder
# A static program has no interpreter to load libraries with.
if LC_ALL=C readelf --program-headers "$file" | grep -q INTERP; then
    echo "$file is not static" >&2
    exit 1
fi
echo "$file"
