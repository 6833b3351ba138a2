#!/usr/bin/env bash
# The store's promises, a whole round of backup, check and restore, and processes that die beside each other, against a real S3
# server (MinIO) on the loopback.
#
#   tests/s3.sh [ROUNDS]
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/round.sh"
source "$(dirname "$0")/storm.sh"
source "$(dirname "$0")/append_only.sh"
source "$(dirname "$0")/servers.sh"
start_minio
export LARDER_TEST_S3=s3:http://127.0.0.1:$port/test
cargo test --quiet --manifest-path "$root/Cargo.toml" --workspace --test conformance

export LARDER_REPOSITORY=s3:http://127.0.0.1:$port/test/repository
validated
tree "$work/source" 3
round "$work/source"
storm "${1:-6}" "$work/source"
append_only "$work/source"
# Everything at once: conversions, repairs and checks too, and after each round every snapshot restores.
LARDER_REPOSITORY=s3:http://127.0.0.1:$port/test/attacked
"$larder" -q init --insecure-kdf
python3 "$root/tests/attack.py" "$larder" --seed 3 --seconds 20 --folder "$work"
LARDER_REPOSITORY=s3:http://127.0.0.1:$port/test/repository
# The server goes away in the middle: a clear error, not a hang; then it comes back and the backup goes on.
kill $server; wait $server 2>/dev/null || true
code=0
"$larder" -q --timeout 3 snapshots 2> "$work/error" || code=$?
[ $code -eq 15 ] || fail "an absent server ended with $code instead of 15: $(cat "$work/error")"
echo "s3: everything whole"
