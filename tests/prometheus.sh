#!/usr/bin/env bash
# A real Prometheus reads the metrics of `larder run`, by way of node_exporter, and of the daemons. Each alert of docs/monitoring
# is tested in both states, and each expression of the dashboard and of the alerts is asked for.
#
#   tests/prometheus.sh
#
# Prometheus and node_exporter are installed, or unpacked from packages of Debian into ~/.cache/larder-ci.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/servers.sh"
cached=${LARDER_CI_CACHE:-$HOME/.cache/larder-ci}/prometheus
PATH=$PATH:$cached/usr/bin
if ! (command -v prometheus && command -v promtool && command -v prometheus-node-exporter) > /dev/null; then
    if ! command -v apt-get > /dev/null; then
        echo "prometheus: skipped, because there is no Prometheus"
        exit 0
    fi
    mkdir -p "$cached"
    # Lists of packages may be missing or old.
    get() { (cd "$work" && apt-get download -qq prometheus prometheus-node-exporter 2> "$work/apt.log"); }
    get || { apt-get update -qq && get; } || fail "Prometheus cannot be had: $(cat "$work/apt.log")"
    for package in "$work"/*.deb; do dpkg -x "$package" "$cached"; done
fi

monitoring=$root/docs/monitoring
promtool check rules "$monitoring/alerts.yml" > "$work/rules.log" || fail "the alerts are no rules: $(cat "$work/rules.log")"
promtool test rules "$monitoring/tests.yml" > "$work/rules.log" 2>&1 || fail "alerts are wrong: $(cat "$work/rules.log")"
# Both states of each alert are in these tests.
for alert in $(sed -n 's/.*- alert: //p' "$monitoring/alerts.yml"); do
    [ "$(grep -c "alertname: $alert\b" "$monitoring/tests.yml")" -ge 2 ] || fail "$alert is not tested in both states"
done

# A profile with everything that has metrics.
export LARDER_CONFIG=$work/larder.toml
mkdir -p "$work/source" "$work/collected"
head -c 300000 /dev/urandom > "$work/source/file"
printf secret > "$work/password"
cat > "$LARDER_CONFIG" <<CONFIG
version = 1
[credentials.one]
password-file = "$work/password"
[repositories.nas]
location = "$work/repository"
credential = "one"
[repositories.nas.optimize]
every = "1s"
[repositories.nas.check]
every = "1s"
[repositories.nas.drill]
every = "1s"
[repositories.second]
location = "$work/second"
credential = "one"
[repositories.second.copy-from.nas]
every = "1s"
[profiles.home]
sources = ["$work/source"]
repositories = ["nas"]
[metrics]
file = "$work/collected/larder.prom"
CONFIG
chmod 600 "$LARDER_CONFIG" "$work/password"
"$larder" -q -r nas init --insecure-kdf
"$larder" -q -r second init --insecure-kdf
"$larder" -q run home

exporter=$(free_port)
prometheus-node-exporter --web.listen-address="127.0.0.1:$exporter" --collector.disable-defaults --collector.textfile \
    --collector.textfile.directory="$work/collected" 2> "$work/exporter.log" & cleanup+=("kill $!")

# daemon NAME LARDER...: starts a daemon with metrics; sets `address_NAME`.
daemon() {
    local name=$1 address
    shift
    "$larder" "$@" --metrics 127.0.0.1:0 > "$work/$name.out" 2> "$work/$name.log" & cleanup+=("kill $!")
    for _ in $(seq 600); do
        address=$(sed -nE 's|.*http://(127[0-9.]*:[0-9]+)/metrics.*|\1|p' "$work/$name.out" "$work/$name.log" | head -n 1)
        [ -z "$address" ] || break
        sleep 0.1
    done
    [ -n "$address" ] || fail "$name serves no metrics: $(cat "$work/$name.log")"
    printf -v "address_$name" %s "$address"
}
daemon gnode -r nas gnode --poll 1s
daemon webdav -r nas serve-webdav --addr 127.0.0.1:0
daemon block -r nas serve-block "latest:$work/source/file"
"$larder" -q volume init "$work/store" --insecure-kdf
daemon volume volume serve "$work/store"

cat > "$work/prometheus.yml" <<CONFIG
global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}
rule_files: [$work/alerts.yml]
scrape_configs:
  - {job_name: node, static_configs: [{targets: ["127.0.0.1:$exporter"]}]}
  - {job_name: larder-gnode, static_configs: [{targets: ["$address_gnode"]}]}
  - {job_name: larder-webdav, static_configs: [{targets: ["$address_webdav"]}]}
  - {job_name: larder-block, static_configs: [{targets: ["$address_block"]}]}
  - {job_name: larder-volume, static_configs: [{targets: ["$address_volume"]}]}
CONFIG
# Nobody waits for days.
sed 's/ for: .*/ for: 0s/' "$monitoring/alerts.yml" > "$work/alerts.yml"
for address in "$address_gnode" "$address_webdav" "$address_block" "$address_volume"; do
    python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' \
        "http://$address/metrics" > "$work/metrics"
    promtool check metrics < "$work/metrics" > "$work/metrics.log" 2>&1 || fail "metrics of $address: $(cat "$work/metrics.log")"
done
promtool check metrics < "$work/collected/larder.prom" > "$work/metrics.log" 2>&1 || fail "metrics: $(cat "$work/metrics.log")"
port=$(free_port)
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" --web.listen-address="127.0.0.1:$port" \
    --log.level=warn 2> "$work/prometheus.log" & cleanup+=("kill $!")
reachable "$port"

asked() { python3 "$root/tests/prometheus.py" "http://127.0.0.1:$port" "$@" || fail "see above; $(cat "$work/prometheus.log")"; }
asked expressions "$monitoring"
asked quiet
# A damaged repository and a daemon that is gone.
container=$(find "$work/repository/data" -type f | head -n 1)
mv "$container" "$work/container"
code=0
"$larder" -q run home > "$work/run.log" 2>&1 || code=$?
[ $code -eq 13 ] || fail "a run on a damaged repository ended with $code: $(cat "$work/run.log")"
asked fires LarderDamage
mv "$work/container" "$container"
"$larder" -q run home > "$work/run.log" 2>&1 || fail "a run on a mended repository failed: $(cat "$work/run.log")"
asked calm LarderDamage
printf wrong > "$work/password"
code=0
"$larder" -q run home > "$work/run.log" 2>&1 || code=$?
[ $code -eq 12 ] || fail "a run with a wrong password ended with $code"
asked fires LarderRunFailed
printf secret > "$work/password"
"$larder" -q run home
asked calm LarderRunFailed
kill "$(pgrep -P $$ -f 'serve-webdav')"
asked fires LarderDaemonDown
echo "prometheus: every alert and every expression works"
