#!/usr/bin/env bash
# A mounted snapshot beside a restore of it, and beside restic's.
#
#   bench/mount.sh [RUNS] [FOLDER] [FOLDERS]   default: 3 runs, below /dev/shm (2 GB of memory), 200 folders of 100 files
#
# Prints a Markdown table of medians, and the share of the restore's speed. Each run has a mount of its own, so the kernel has nothing
# cached. BENCH_LARDER names another binary, as for run.py. With BENCH_AFAR=1 the repository is in MinIO (from PATH) behind a link of
# 30 ms and 90 MB/s (harness/link.py), without restic. Needs root, /dev/fuse, rsync and Python; rows of restic where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-3}
if [ -z "${BENCH_LARDER:-}" ]; then
    cargo build --release --quiet --package larder
fi
larder=$(realpath "${BENCH_LARDER:-${CARGO_TARGET_DIR:-target}/release/larder}")
work=$(mktemp -d -p "${2:-/dev/shm}")
trap 'umount -l "$work/mnt" 2>/dev/null || true; exec 3>&- || true; wait; rm -rf "$work"' EXIT
export LARDER_PASSWORD=x RESTIC_PASSWORD=x XDG_CACHE_HOME=$work/cache LARDER_STATE=$work/state
export LARDER_REPOSITORY=$work/larder RESTIC_REPOSITORY=$work/restic
mkdir "$work/mnt"
python3 - "$work/tree" "${3:-200}" <<'PY'
import os, random, sys
top, folders, chance = sys.argv[1], int(sys.argv[2]), random.Random(1)
words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(5000)]
text = lambda size: b" ".join(chance.choices(words, k=size // 6))[:size]
for folder in range(folders):
    path = f"{top}/small/{folder % 10}/{folder}"
    os.makedirs(path)
    for name in range(100):
        open(f"{path}/{name}.txt", "wb").write(text(chance.randint(500, 20_000)))
os.makedirs(f"{top}/large")
for name in range(8):
    open(f"{top}/large/{name}", "wb").write(b"".join(text(8192) + chance.randbytes(8192) for _ in range(max(1, folders * 2048 // 200))))
PY
has_restic=$(command -v restic || true)
if [ -n "${BENCH_AFAR:-}" ]; then
    has_restic=
    export AWS_ACCESS_KEY_ID=benchaccess AWS_SECRET_ACCESS_KEY=benchsecret AWS_REGION=us-east-1
    mkfifo "$work/end"
    (cd bench && exec python3 -m harness.link "$work" < "$work/end" > "$work/location") &
    exec 3> "$work/end"
    until [ -s "$work/location" ]; do sleep 0.1; kill -0 $!; done
    LARDER_REPOSITORY=$(cat "$work/location")
fi
"$larder" -q init --insecure-kdf && "$larder" -q backup "$work/tree"
if [ -n "$has_restic" ]; then restic -q init >/dev/null && restic -q backup "$work/tree"; fi
echo "$(find "$work/tree" -type f | wc -l) files, $(du -sm "$work/tree" | cut -f1) MB, $(nproc) cores; $("$larder" --version), ${has_restic:+$(restic version | cut -d" " -f1-2)}"
echo "Load of the machine before: $(cut -d' ' -f1 /proc/loadavg)."
echo
echo "| tool | what | wall s | CPU s of the tool | peak MB of the tool | speed of the restore |"
echo "|---|---|---:|---:|---:|---:|"

# Runs a mount and a command on it. Prints wall time, CPU time and peak memory of the mount.
mounted() { # TOOL COMMAND
    local pid began ended
    case $1 in
        larder) "$larder" -q mount "$work/mnt" >/dev/null 2>&1 & ;;
        restic) restic -q mount "$work/mnt" >/dev/null 2>&1 & ;;
    esac
    pid=$!
    for _ in $(seq 500); do mountpoint -q "$work/mnt" && break; sleep 0.02; done
    at=$work/mnt/snapshots/latest$work/tree
    began=$(date +%s.%N)
    (cd "$at" && eval "$2") >/dev/null
    ended=$(date +%s.%N)
    python3 - "$pid" "$began" "$ended" <<'PY'
import os, sys
pid, began, ended = sys.argv[1:]
times = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
peak = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))
print(float(ended) - float(began), cpu, peak / 1024)
PY
    kill "$pid" && wait "$pid" || true
    # A mount may stay behind its program.
    umount -l "$work/mnt" 2>/dev/null || true
}

# Restores everything. Prints the same.
restored() { # TOOL
    case $1 in
        larder) set -- "$larder" -q restore latest --target "$work/restored" ;;
        restic) set -- restic -q restore latest --target "$work/restored" ;;
    esac
    /usr/bin/env python3 - "$@" <<'PY'
import os, resource, subprocess, sys, time
began = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
PY
}

row() { # TOOL WHAT COMMAND...
    local tool=$1 what=$2
    shift 2
    for _ in $(seq "$runs"); do
        rm -rf "$work/restored"
        "$@"
    done | python3 -c "
import statistics, sys
medians = [statistics.median(column) for column in zip(*(map(float, line.split()) for line in sys.stdin))]
if '$what' == 'restore':
    open('$work/of-restore', 'w').write(str(medians[0]))
share = float(open('$work/of-restore').read()) / medians[0]
print('| $tool | $what |', ' | '.join('%.2f' % median for median in medians), '| %.0f %% |' % (100 * share))"
}

for tool in larder ${has_restic:+restic}; do
    row "$tool" "restore" restored "$tool"
    row "$tool" "find" mounted "$tool" "find ."
    row "$tool" "ls -lR" mounted "$tool" "ls -lR"
    row "$tool" "cp -a" mounted "$tool" "cp -a . $work/restored"
    row "$tool" "rsync -a" mounted "$tool" "rsync -a . $work/restored"
    row "$tool" "grep -r" mounted "$tool" "grep -r nothing-like-it . || true"
done
