#!/usr/bin/env bash
# Timers of `larder schedule install` under a real systemd, which boots twice in a container.
#
#   tests/systemd.sh
#
# - First boot: the timer of a profile is enabled, fires within a minute, and its hardened service makes a snapshot.
# - Second boot: the run that was missed meanwhile is made up for, once; two starts at once are one run; `schedule remove` leaves nothing.
# Needs root, debootstrap, systemd-nspawn and a mirror of Debian. It takes two minutes, so the gate runs it on request only.
source "$(dirname "$0")/common.sh"
for needed in debootstrap systemd-nspawn; do
    command -v $needed > /dev/null || { echo "systemd: skipped, because $needed is not installed"; exit 0; }
done
[ "$(id -u)" -eq 0 ] || { echo "systemd: skipped, because it needs root"; exit 0; }
bare=$work/bare shared=$work/shared
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus stable "$bare" > "$work/debootstrap.log" 2>&1 ||
    fail "no root of Debian: $(tail -n 3 "$work/debootstrap.log")"
cp "$larder" "$bare/usr/local/bin/larder"
mkdir -p "$shared/source"
echo content > "$shared/source/file"
(umask 077 && echo secret > "$shared/password" && cat > "$shared/larder.toml" <<'CONFIG')
version = 1
[credentials.home]
password-file = "/srv/shared/password"
[repositories.nas]
location = "/srv/shared/nas"
credential = "home"
[profiles.home]
sources = ["/srv/shared/source"]
repositories = ["nas"]
oncalendar = "*:0/1"
CONFIG

# What runs in the container, behind everything that a boot starts.
cat > "$shared/inside" <<'INSIDE'
#!/bin/bash
exec > "/srv/shared/said-$1" 2>&1
set -euxo pipefail
trap 'systemctl poweroff' EXIT
cd /srv/shared
larder() { command larder --config /srv/shared/larder.toml "$@"; }
snapshots() { larder -r nas snapshots --json | grep -o '"id"' | wc -l; }
shows() { [ "$(systemctl show --value -p "$2" "larder-run-home.$1")" = "$3" ]; }
ended() { for _ in $(seq 90); do [ "$(snapshots)" -lt "$1" ] || ! shows service ActiveState inactive || return 0; sleep 1; done; return 1; }
first() {
    larder -q -r nas init --insecure-kdf
    larder schedule install
    shows timer UnitFileState enabled && shows timer ActiveState active
    ended 1
    shows service Result success && shows service NoNewPrivileges yes && shows service ProtectSystem strict
    larder schedule show | grep 'systemd knows.* done$'
    # Every day from now on, and as if it had been off for two days.
    sed -i 's/^oncalendar = .*/schedule = "daily 02:30"/' larder.toml
    larder schedule install
    touch -d '2 days ago' /var/lib/systemd/timers/stamp-larder-run-home.timer
    snapshots > before
}
second() {
    local before; before=$(cat before)
    ended $((before + 1))
    sleep 3
    [ "$(snapshots)" -eq $((before + 1)) ]
    head -c 50000000 /dev/urandom > source/new
    systemctl start --no-block larder-run-home.service
    systemctl start larder-run-home.service
    [ "$(snapshots)" -eq $((before + 2)) ]
    larder schedule remove
    shows timer LoadState not-found
}
"$1"
touch "done-$1"
INSIDE
chmod +x "$shared/inside"

boot() { # first|second
    printf '[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/srv/shared/inside %s\n' "$1" > "$bare/etc/systemd/system/inside.service"
    mkdir -p "$bare/etc/systemd/system/multi-user.target.wants"
    ln -sf ../inside.service "$bare/etc/systemd/system/multi-user.target.wants/inside.service"
    timeout 180 systemd-nspawn --quiet --register=no --keep-unit --directory="$bare" --bind="$shared:/srv/shared" --machine=larder \
        --boot < /dev/null > "$work/console" 2>&1 || true
    [ -e "$shared/said-$1" ] || { echo "systemd: skipped, because it does not boot here: $(tail -n 2 "$work/console")"; exit 0; }
    [ -e "$shared/done-$1" ] || fail "the $1 boot: $(tail -n 20 "$shared/said-$1")"
}
boot first
boot second
echo "systemd: a timer fired, a missed run was made up for, and nothing is left"
