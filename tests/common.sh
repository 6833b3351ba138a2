# For the scripts beside it: the binary, a work folder, and short words. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Of the whole workspace: what the tests built is used again. LARDER_BUILT says that it is there: steps of the gate that run side by
# side would wait for one another's builds.
[ -n "${LARDER:-}${LARDER_BUILT:-}" ] || cargo build --quiet --manifest-path "$root/Cargo.toml" --examples --bins
bin=${CARGO_TARGET_DIR:-$root/target}/debug
# LARDER names another binary, to see what an older one did.
larder=${LARDER:-$bin/larder}
work=$(mktemp -d)
cleanup=()
on_exit() {
    local step
    for step in "${cleanup[@]}"; do eval "$step" || true; done
    # Daemons that were asked to end still write. What stays says nothing about the test, whose exit code this must not change.
    for _ in $(seq 100); do [ -n "$(jobs -pr)" ] || break; sleep 0.1; done
    rm -rf "$work" || true
}
trap on_exit EXIT
export LARDER_PASSWORD=secret LARDER_CACHE_DIR=$work/cache LARDER_STATE=$work/state LARDER_MIN_AGE=0s

fail() { echo "FAILED: $*" >&2; exit 1; }

# same A B: every difference in content and metadata, by a comparison that shares nothing with the product.
same() { "$bin/examples/treediff" --no-root "$1" "$2" || fail "$2 differs from $1"; }

# Puts into `faultfs` the options that name a file system which fails as it is told, where there is FUSE; nothing elsewhere.
find_faultfs() {
    faultfs=()
    [ -w /dev/fuse ] && pkg-config --exists fuse3 2> /dev/null || return 0
    # shellcheck disable=SC2046
    cc -O1 -o "$work/faultfs" "$root/tests/faultfs.c" $(pkg-config --cflags --libs fuse3) && faultfs=(--faultfs "$work/faultfs")
}

# tree FOLDER SEED: some thousand files of many sizes, the same for the same seed.
tree() {
    python3 - "$1" "$2" <<'PY'
import os, random, sys
root, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
words = [("%x" % rng.getrandbits(30)).encode() for _ in range(2000)]
for n in range(600):
    folder = os.path.join(root, "d%d" % (n % 17), "e%d" % (n % 5))
    os.makedirs(folder, exist_ok=True)
    size = rng.choice([0, 10, 300, 5000, 40000, 300000])
    with open(os.path.join(folder, "f%d" % n), "wb") as out:
        while out.tell() < size:
            out.write(b" ".join(rng.choices(words, k=500)))
with open(os.path.join(root, "big"), "wb") as out:
    for _ in range(40):
        out.write(rng.randbytes(1 << 20))
PY
}
