#!/usr/bin/env bash
# The static program in an empty container: no libraries, no /dev, no certificates.
#
#   tests/static.sh [PROGRAM]     PROGRAM is what dist/static.sh built, unless the program of the profile dev is meant
static=${1:-}
[ "$static" ] || source "$(dirname "$0")/static_program.sh"
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/servers.sh"
empty=$work/empty
mkdir -p "$empty/tmp"
cp "$static" "$empty/larder"
tree "$empty/source" 5

# inside ARGUMENTS: the program with the empty folder as its root.
inside() {
    if [ "$(id -u)" -eq 0 ]; then chroot "$empty" /larder "$@"; else unshare --map-root-user chroot "$empty" /larder "$@"; fi
}

# whole: a repository is made, filled, read back and checked.
whole() {
    inside -q init --insecure-kdf
    inside -q backup /source
    inside -q restore latest:/source --target "/restored$1"
    same "$empty/source" "$empty/restored$1"
    inside -q check --read-data
}

export LARDER_CACHE_DIR=/tmp/cache LARDER_STATE=/tmp/state
# These may name files that the container lacks.
unset AWS_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR
LARDER_REPOSITORY=/repository whole 1
start_minio
# By name: a static glibc reads /etc/hosts and asks DNS without the libraries of a name service.
mkdir "$empty/etc"
echo "127.0.0.1 store.test" > "$empty/etc/hosts"
LARDER_REPOSITORY=s3:http://store.test:$port/test/repository whole 2
echo "static: whole in an empty root, on a folder and on S3 ($(stat -c %s "$static") bytes)"
