#!/usr/bin/env python3
"""The history of a restic repository: `larder import restic` beside `restic restore` of each snapshot.

    bench/import.py                                20 snapshots of 1,000 files, three runs, medians
    bench/import.py --snapshots 5 --files 200 --runs 1

The source has files of 4 to 256 KiB, half of which can be compressed. Between snapshots, one file of fifty changes. Both programs read
the same repository, and take turns. Each import has a new repository, and each restore an empty folder. CPU is user and system time. The
peak is that of the largest process. The files are at BENCH_WORK (default: the folder for temporary files); the program is that of
BENCH_LARDER (default: target/release/larder).
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

LARDER = os.environ.get("BENCH_LARDER", "target/release/larder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    larder, restic = str(pathlib.Path(LARDER).resolve()), shutil.which("restic")
    if not restic:
        raise SystemExit("restic is not installed")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_WORK")) as folder:
        work = pathlib.Path(folder)
        env = dict(os.environ, HOME=folder, XDG_CACHE_HOME=str(work / "cache"), RESTIC_PASSWORD="a password")
        env |= dict(RESTIC_REPOSITORY=str(work / "restic"), LARDER_PASSWORD="another", LARDER_STATE=str(work / "state"))
        size = make(args, work, restic, env)
        listed = subprocess.run([restic, "snapshots", "--json", "--quiet"], env=env, check=True, capture_output=True)
        ids = [snapshot["id"] for snapshot in json.loads(listed.stdout)]
        results = {"larder import": [], "restic restore": []}
        for number in range(args.runs):
            env["LARDER_REPOSITORY"] = str(work / f"larder-{number}")
            run([larder, "-q", "init"], env)
            results["larder import"].append(run([larder, "-q", "import", "restic", str(work / "restic")], env))
            shutil.rmtree(work / f"larder-{number}")
            together = [0.0, 0.0, 0]
            for snapshot in ids:
                target = work / "restored"
                used = run([restic, "-q", "restore", snapshot, "--target", str(target)], env)
                together = [together[0] + used[0], together[1] + used[1], max(together[2], used[2])]
                shutil.rmtree(target)
            results["restic restore"].append(together)
        print(f"{len(ids)} snapshots of {args.files} files, {size / 1e6:.0f} MB each, medians of {args.runs}.\n")
        print("| what | wall, s | CPU, s | peak, MB |\n|---|---:|---:|---:|")
        for name, runs in results.items():
            wall, cpu, peak = (statistics.median(column) for column in zip(*runs))
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {peak / 1024:.0f} |")


def make(args, work, restic, env):
    """A repository with all snapshots. Returns the bytes of the last one."""
    rng, source = random.Random(1), work / "source"
    sizes = [rng.randrange(4, 257) << 10 for _ in range(args.files)]
    subprocess.run([restic, "init", "--quiet"], env=env, check=True, stdout=subprocess.DEVNULL)
    for snapshot in range(args.snapshots):
        for file in range(args.files) if snapshot == 0 else range(snapshot % 50, args.files, 50):
            path = source / f"{file % 20:02}" / f"{file:05}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(rng.randbytes(512) + bytes(512) for _ in range(sizes[file] >> 10)))
        day = f"2026-{1 + snapshot // 28:02}-{1 + snapshot % 28:02} 03:00:00"
        subprocess.run([restic, "backup", "--quiet", "--time", day, str(source)], env=env, check=True)
    return sum(sizes)


def run(command, env):
    """Seconds, CPU seconds and peak memory in KiB of a command."""
    started = time.monotonic()
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    return [time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss]


if __name__ == "__main__":
    main()
