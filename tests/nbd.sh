#!/usr/bin/env bash
# The NBD server against other programs' clients: nbdinfo, nbdcopy, qemu-img, qemu-io and fio.
# The NBD client against another program's server: qemu-nbd.
#
# Over a Unix socket, TCP, and TCP with TLS; with a device in memory and with a file.
set -euo pipefail
cd "$(dirname "$0")/.."
# Of the whole workspace: what the tests built is used again.
[ -n "${LARDER_BUILT:-}" ] || cargo build --quiet --workspace --examples --bins
serve=${CARGO_TARGET_DIR:-target}/debug/examples/nbd_serve
read=${CARGO_TARGET_DIR:-target}/debug/examples/nbd_read
work=$(mktemp -d)
server=
on_exit() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    rm -rf "$work" || true
}
trap on_exit EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

# start WORDS...: runs the server, and sets `where` to what it listens on.
start() {
    rm -f "$work/end" "$work/where"
    mkfifo "$work/end"
    "$serve" "$@" < "$work/end" > "$work/where" &
    server=$!
    exec 9> "$work/end"
    for _ in $(seq 500); do [ -s "$work/where" ] && break; sleep 0.02; done
    where=$(cat "$work/where")
    [ -n "$where" ] || fail "the server does not start: $*"
}

# stop: ends the server as a program would, and expects that it ends well.
stop() {
    exec 9>&-
    wait "$server" || fail "the server ended with $?"
    server=
}

size=$((48 << 20))
python3 - "$work/data" "$size" <<'PY'
import random, sys
rng, size = random.Random(18), int(sys.argv[2])
with open(sys.argv[1], "wb") as out:
    out.truncate(size)
    for _ in range(60):
        out.seek(rng.randrange(size - 400_000) & ~511)
        out.write(rng.randbytes(rng.randrange(1, 400_000)))
PY

# round URI: what any writable device of $size bytes must do.
round() {
    local uri=$1
    nbdinfo --json "$uri" > "$work/info.json"
    python3 - "$work/info.json" "$size" <<'PY'
import json, sys
info, = json.load(open(sys.argv[1]))["exports"]
wanted = {"export-size": int(sys.argv[2]), "is_read_only": False, "can_flush": True, "can_fua": True, "can_trim": True,
          "can_zero": True, "can_multi_conn": True, "can_df": True, "block_size_maximum": 32 << 20}
wrong = {key: info.get(key) for key, value in wanted.items() if info.get(key) != value}
assert not wrong and "base:allocation" in info["contexts"], (wrong, info["contexts"])
PY
    nbdcopy "$work/data" "$uri"
    nbdcopy "$uri" "$work/back"
    cmp "$work/data" "$work/back" || fail "nbdcopy read something else"
    nbdcopy --synchronous "$uri" "$work/back"
    cmp "$work/data" "$work/back" || fail "nbdcopy --synchronous read something else"
    nbdinfo --map --json "$uri" > "$work/map.json"
    python3 - "$work/map.json" "$work/data" "$size" <<'PY'
import json, sys
data, at = open(sys.argv[2], "rb").read(), 0
extents = json.load(open(sys.argv[1]))
for extent in extents:
    assert extent["offset"] == at, extent
    at += extent["length"]
    if extent["type"] & 2:
        assert not any(data[extent["offset"]:at]), f"not zero: {extent}"
assert at == int(sys.argv[3]), at
assert any(extent["type"] == 3 for extent in extents) and any(extent["type"] == 0 for extent in extents), extents
PY
    [ -z "${2:-}" ] || return 0
    qemu-img compare -f raw -F raw "$work/data" "$uri" || fail "qemu-img sees a difference"
    # Unaligned patterns, zeroes and discards across borders; reads check what was written.
    qemu-io -f raw -c 'write -P 0x11 1000 70000' -c 'write -P 0x22 2000 10' -c 'read -P 0x11 1000 1000' \
        -c 'read -P 0x22 2000 10' -c 'read -P 0x11 2010 68990' -c 'write -z 60000 9000' -c 'read -P 0 60000 9000' \
        -c 'read -P 0x11 69000 2000' -c 'write -z -u 65536 131072' -c 'read -P 0 65536 131072' \
        -c 'write -f -P 0x33 1M 1M' -c 'discard 1M 64k' -c 'flush' -c 'read -P 0x33 1114112 65536' \
        -c 'aio_write -P 0x44 2M 2M' -c 'aio_write -P 0x55 4M 2M' -c 'aio_flush' -c 'read -P 0x44 2M 2M' \
        -c 'read -P 0x55 4M 2M' "$uri" > "$work/qemu-io" || { cat "$work/qemu-io"; fail "qemu-io"; }
    ! grep -i 'failed\|error' "$work/qemu-io" || fail "qemu-io"
    # Two whole-image tools that use block status and zeroes.
    qemu-img convert -n -f raw -O raw "$work/data" "$uri"
    qemu-img compare -f raw -F raw "$work/data" "$uri" || fail "qemu-img converted something else"
    if fio --enghelp 2> /dev/null | grep -qw nbd; then
        fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite --bsrange=512-64k --bs_unaligned --size=8M \
            --numjobs=4 --offset_increment=12M --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0 \
            --group_reporting > "$work/fio" || { cat "$work/fio"; fail "fio"; }
    fi
}

echo "== memory, Unix socket"
start "memory:$size" "unix:$work/socket"
[ "$(stat -c %a "$work/socket")" = 600 ] || fail "the socket is for others too"
round "nbd+unix:///disk?socket=$work/socket"
nbdinfo --list "nbd+unix:///?socket=$work/socket" | grep -q 'export="disk"' || fail "no list"
! nbdinfo "nbd+unix:///tape?socket=$work/socket" > /dev/null 2>&1 || fail "an export that is not there"
stop
[ ! -e "$work/socket" ] || fail "the socket is left behind"

echo "== file, Unix socket"
truncate -s "$size" "$work/file"
start "file:$work/file" "unix:$work/socket"
round "nbd+unix:///disk?socket=$work/socket"
stop
start "file:$work/file" --read-only "unix:$work/socket"
nbdcopy "nbd+unix:///disk?socket=$work/socket" "$work/back"
cmp "$work/file" "$work/back" || fail "the file is read as something else"
! qemu-io -f raw -c 'write 0 512' "nbd+unix:///disk?socket=$work/socket" > /dev/null 2>&1 || fail "written, although read-only"
stop

echo "== a server that was killed"
start "memory:$size" "unix:$work/socket"
kill -9 "$server"
{ wait "$server" || true; } 2> /dev/null
exec 9>&-
[ -S "$work/socket" ] || fail "the socket of a dead server is expected here"
start "memory:$size" "unix:$work/socket"
nbdinfo --size "nbd+unix:///disk?socket=$work/socket" | grep -qx "$size" || fail "it does not serve"
stop

echo "== memory, TCP"
start "memory:$size" tcp:127.0.0.1:0
round "nbd://$where/disk"
stop

echo "== memory, TCP with TLS"
tls=$work/tls
mkdir "$tls"
(
    cd "$tls"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN=authority 2> /dev/null
    for side in server client; do
        openssl req -newkey rsa:2048 -nodes -keyout $side-key.pem -out $side.csr -subj /CN=localhost 2> /dev/null
        openssl x509 -req -in $side.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -out $side-cert.pem -days 2 \
            -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") 2> /dev/null
    done
)
start "memory:$size" tcp:127.0.0.1:0 --tls "$tls"
uri="nbds://localhost:${where##*:}/disk?tls-certificates=$tls"
round "$uri" short
! nbdinfo "nbd://$where/disk" > /dev/null 2>&1 || fail "served without TLS"
qemu-img compare --object "tls-creds-x509,id=tls,endpoint=client,dir=$tls" --image-opts \
    "driver=raw,file.driver=file,file.filename=$work/data" \
    "driver=raw,file.driver=nbd,file.host=localhost,file.port=${where##*:},file.export=disk,file.tls-creds=tls" \
    || fail "qemu-img over TLS"
"$read" "tcp:localhost:${where##*:}" disk data --tls "$tls" | cmp - "$work/data" || fail "our client over TLS"
stop

echo "== client, qemu-nbd"
# peer WORDS...: runs qemu-nbd, and waits for its socket.
peer() {
    qemu-nbd -r -t "$@" &
    server=$!
    for _ in $(seq 500); do "$read" "$where" "$name" data "${secure[@]}" > /dev/null 2>&1 && return; sleep 0.02; done
    fail "qemu-nbd does not start: $*"
}
secure=() name=image
qemu-img convert -f raw -O qcow2 "$work/data" "$work/image"
qemu-img bitmap --add -g 65536 -f qcow2 "$work/image" changes
qemu-io -f qcow2 -c 'write -P 1 3M 100k' -c 'write -P 2 20M 1' "$work/image" > /dev/null
qemu-img convert -f qcow2 -O raw "$work/image" "$work/changed"
where=unix:$work/peer
peer -x image -f qcow2 -B changes -k "$work/peer" "$work/image"
"$read" "$where" image data | cmp - "$work/changed" || fail "our client reads something else"
"$read" "$where" image qemu:dirty-bitmap:changes | awk '$3 == 1 { print $1, $2 }' > "$work/dirty"
printf '%s\n' "3145728 131072" "20971520 65536" | diff - "$work/dirty" || fail "our client sees other changes"
"$read" "$where" image base:allocation > "$work/ours"
nbdinfo --map "nbd+unix:///image?socket=$work/peer" | awk '{ print $1, $2, $3 }' | diff - "$work/ours" || fail "another map"
! "$read" "$where" tape data > /dev/null 2>&1 || fail "an export that is not there"
kill "$server"
wait "$server" || true
port=$(python3 -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
where=tcp:localhost:$port secure=(--tls "$tls")
peer -x image -f qcow2 -b 127.0.0.1 -p "$port" --object "tls-creds-x509,id=tls,endpoint=server,dir=$tls,verify-peer=on" \
    --tls-creds tls "$work/image"
"$read" "$where" image data --tls "$tls" | cmp - "$work/changed" || fail "our client over TLS reads something else"
kill "$server"
wait "$server" || true
server=
echo "passed"
