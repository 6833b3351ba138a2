# Servers on the loopback, for the scripts that source this after common.sh.

# free_port: prints a port that nobody listens on.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# reachable PORT: waits until somebody listens there.
reachable() {
    for _ in $(seq 600); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.1
    done
    fail "nobody listens at port $1"
}

# start_minio: starts one with a bucket `test`; sets `port` and `server` (its process), exports keys.
start_minio() {
    local minio
    minio=$(command -v minio || echo "${GOBIN:-$HOME/.cache/larder-ci/bin}/minio")
    [ -x "$minio" ] || fail "no minio binary; go install github.com/minio/minio@latest"
    port=$(free_port)
    export MINIO_ROOT_USER=larder MINIO_ROOT_PASSWORD=larder-secret
    "$minio" server "$work/minio" --address "127.0.0.1:$port" --quiet > "$work/minio.log" 2>&1 & server=$!
    cleanup+=("kill $server")
    mkdir -p "$work/minio/test"
    reachable "$port"
    export AWS_ACCESS_KEY_ID=larder AWS_SECRET_ACCESS_KEY=larder-secret AWS_REGION=us-east-1
    sleep 1
}
