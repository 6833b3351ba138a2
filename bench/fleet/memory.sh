#!/usr/bin/env bash
# What a worker of a batch takes at most, as the kernel counts it (VmHWM), with S3 and NATS over TLS.
#
# Two workers have two images each, with three quarters of the content in common; then pages change, twice. All processes have one
# program file. Needs openssl, minio and nats-server in the path or in ~/.cache/larder-ci/bin.
#
#   bench/fleet/memory.sh LARDER [MIB OF AN IMAGE] [LIMIT]
set -euo pipefail

larder=$(realpath "$1")
size=${2:-200}
limit=${3:-35M}
PATH=$PATH:$HOME/.cache/larder-ci/bin
dir=$(mktemp -d)
jobs=()
end() {
    { kill -9 "${jobs[@]}" && wait; } 2>/dev/null || true
    rm -rf "$dir"
}
trap end EXIT
cd "$dir"

mkdir certs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ca.key -out ca.crt -subj /CN=test 2>openssl.log
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout certs/private.key -out server.csr -subj /CN=localhost 2>openssl.log
printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' >extensions
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out certs/public.crt 2>openssl.log
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
s3=$(port) nats=$(port)
export MINIO_ROOT_USER=minio MINIO_ROOT_PASSWORD=minio-bench AWS_ACCESS_KEY_ID=minio AWS_SECRET_ACCESS_KEY=minio-bench AWS_REGION=us-east-1
mkdir -p data/bucket
minio server --certs-dir certs --address "127.0.0.1:$s3" data >minio.log 2>&1 &
jobs+=($!)
cat >nats.conf <<CONF
listen: "127.0.0.1:$nats"
jetstream { store_dir: "$dir/nats" }
tls { cert_file: "$dir/certs/public.crt", key_file: "$dir/certs/private.key" }
CONF
nats-server -c nats.conf >nats.log 2>&1 &
jobs+=($!)

export LARDER_REPOSITORY=s3:https://127.0.0.1:$s3/bucket/repository LARDER_CACERT=$dir/ca.crt
for _ in $(seq 100); do
    LARDER_PASSWORD=bench "$larder" --cacert ca.crt -q init --insecure-kdf 2>init.log && break
    sleep 0.1
done
LARDER_PASSWORD=bench "$larder" --cacert ca.crt -q key add --role all --file all.key
export LARDER_KEY_FILE=$dir/all.key

python3 - "$size" <<'PYTHON'
import os, sys
size = int(sys.argv[1]) << 20
common = os.urandom(size * 3 // 4)
for name in "abcd":
    with open(f"{name}.raw", "wb") as image:
        image.write(common)
        image.write(os.urandom(size - len(common)))
with open("images.toml", "w") as inventory:
    for name, host in zip("abcd", ["first", "first", "second", "second"]):
        inventory.write(f'[[image]]\nname = "{name}"\nsource = "{os.getcwd()}/{name}.raw"\nhost = "{host}"\n')
PYTHON

run() { XDG_CACHE_HOME=$dir/cache-$1 LARDER_STATE=$dir/state-$1 "$larder" --cacert ca.crt "${@:2}"; }
echo "images of $size MiB, --total-memory $limit; KiB at most"
for day in 1 2 3; do
    for queue in "tls://127.0.0.1:$nats --nats-cacert $dir/ca.crt" store; do
        workers=()
        for name in first second; do
            # shellcheck disable=SC2086 # the queue is several words
            run $name fleet work images.toml --host $name --queue $queue --once --total-memory "$limit" --json >$name.json 2>$name.log &
            workers+=($!)
            jobs+=($!)
        done
        # shellcheck disable=SC2086
        run planner fleet run images.toml --queue $queue --no-pass --total-memory "$limit" --json >planner.json 2>planner.log
        wait "${workers[@]}"
        python3 - "$day" "${queue%%:*}" <<'PYTHON'
import json, sys
def peak(name, kind):
    return next(line["memory_bytes"] for line in map(json.loads, open(f"{name}.json")) if line["message_type"] == kind) >> 10
workers = [peak(name, "fleet_work") for name in ("first", "second")]
print(f"batch {sys.argv[1]}, queue {sys.argv[2]}: workers {workers[0]}, {workers[1]}; worst register {peak('planner', 'fleet_summary')}")
PYTHON
        python3 - "$day" <<'PYTHON'
import os, random, sys
random.seed(sys.argv[1])
for name in "abcd":
    with open(f"{name}.raw", "r+b") as image:
        size = os.path.getsize(image.name)
        for _ in range(700):
            image.seek(random.randrange(size >> 12) << 12)
            image.write(os.urandom(4096))
PYTHON
    done
done
