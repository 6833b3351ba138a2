#!/usr/bin/env bash
# Fleet batches between network namespaces (fleet_net.py): links are cut, servers and workers are killed and stopped, a disk is full.
#
#   tests/fleet_net.sh [SCENARIO...]      all by default: ten minutes; `short` takes two of them
source "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: network namespaces need root"; exit 0; }
probe=larder-probe-$$
if ! { ip netns add "$probe" && ip -n "$probe" link add bridge0 type bridge && ip -n "$probe" link add one type veth peer name two; }; then
    ip netns delete "$probe" 2> /dev/null || true
    echo "skipped: there are no network namespaces with bridges here"
    exit 0
fi
ip netns delete "$probe"
[ "${1:-}" != short ] || set -- nats_is_killed_and_loses_its_files a_worker_is_stopped_before_it_finishes_and
python3 "$root/tests/fleet_net.py" "$larder" "$@"
