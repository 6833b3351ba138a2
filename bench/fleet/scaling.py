#!/usr/bin/env python3
"""How a batch scales with its workers: 1 to 16 processes with the queue of the store, and up to 100 computed from their costs.

    bench/fleet/scaling.py --json scaling.json       16 images: 2 GB of disk, 10 minutes
    bench/fleet/scaling.py --workers 1,2 --images 4 --mib 2
    bench/fleet/scaling.py --from scaling.json       the tables again

Each process may send 1 MB a second, so two cores are enough for 16. Each image has 9 parts of its own and 3 that all images have,
of random bytes. `Computed` takes the seconds of each stage from the runs with one and two processes, and adds the waits between
two looks at the repository. It is compared with the other runs. The second table has as many images for each worker as the first
row has in all.
"""

import argparse
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from rate import Larder, ended, seconds
from run import message, stages

# Stages of images, of hosts and of partitions, in their order.
STAGES = ["scan", "send", "join", "store", "place", "resolve", "finish"]
# Seconds between two looks of a process at the repository: `POLL` in `crates/cli/src/commands/fleet.rs`.
LOOK = 2.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--mib", type=int, default=12, help="size of an image")
    parser.add_argument("--rate", default="1MB", help="a second, of each process to the repository")
    parser.add_argument("--work", type=pathlib.Path, help="existing folder for images and repositories")
    parser.add_argument("--from", dest="source", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if args.source:
        rows = json.loads(args.source.read_text())
    else:
        larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
        with tempfile.TemporaryDirectory(dir=args.work) as folder:
            work = pathlib.Path(folder)
            common = random.Random(0).randbytes((args.mib << 20) // 4)
            for number in range(args.images):
                own = random.Random(number + 1).randbytes((args.mib << 20) - len(common))
                (work / f"vm-{number:02}.raw").write_bytes(own + common)
            rows = [measured(larder, work, count, args) for count in map(int, args.workers.split(","))]
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    table(rows)


def measured(larder, work, count, args):
    tool = Larder(larder, work, f"repository-{count}")
    hosts = [socket.gethostname(), *(f"host-{number}" for number in range(1, count))]
    inventory = work / f"images-{count}.toml"
    inventory.write_text("".join(
        f'[[image]]\nsource = "{work}/vm-{number:02}.raw"\nhost = "{hosts[number % count]}"\n' for number in range(args.images)))
    limits = ["--limit-upload", args.rate, "--limit-download", args.rate]
    workers = [Larder(larder, work, tool.name, f"-{host}").start("fleet", "work", inventory, "--host", host, "--once", "--json", *limits)
               for host in hosts[1:]]
    time.sleep(1 + count / 4)
    begin = time.monotonic()
    output, used = ended(tool.start("fleet", "run", inventory, "--queue", "store", "--no-pass", "--json", *limits))
    wall = time.monotonic() - begin
    others = [ended(worker) for worker in workers]
    summary = message(output, "fleet_summary")
    assert summary["images_saved"] == args.images, summary
    status = message(tool("fleet", "status", summary["batch"], "--json"), "fleet_status")
    row = {
        "workers": count, "images": args.images, "wall": round(wall, 2), "cpu": round(sum(map(seconds, [used, *(used for _, used in others)])), 2),
        "rss": max([summary["memory_bytes"], *(message(said, "fleet_work")["memory_bytes"] for said, _ in others)]),
        "own": (args.mib << 20) - (args.mib << 20) // 4, "common": (args.mib << 20) // 4,
        "read": summary["read_bytes"], "new": summary["data_added"], "stages": stages(status),
    }
    print(json.dumps(row), flush=True)
    return row


class Computed:
    """Seconds of a batch, from what runs with one process and with two cost."""

    def __init__(self, one, two):
        self.images, self.own, self.common = one["images"], one["own"], one["common"]
        took = lambda row, stage: row["stages"].get(stage, {"seconds": 0.0})["seconds"]
        self.of_image = {stage: took(one, stage) / self.images for stage in ("scan", "finish")}
        self.of_host = {stage: took(one, stage) for stage in ("send", "place")}
        # Each process has one. Its bytes stay the same, because there are as many more partitions as questions.
        self.of_partition = {stage: took(two, stage) / 2 for stage in ("join", "resolve")}
        rest = one["wall"] - sum(took(one, stage) for stage in STAGES if stage != "store")
        self.of_byte = rest / (self.images * self.own + self.common)

    def stages(self, workers, images):
        """Of each stage, the seconds of the process with the most to do."""
        most = -(-images // workers)
        found = {stage: seconds * most for stage, seconds in self.of_image.items()}
        found |= {stage: seconds * most / self.images for stage, seconds in self.of_host.items()}
        found |= self.of_partition
        # The first image stores what all have.
        found["store"] = self.of_byte * (most * self.own + self.common)
        return found

    def seconds(self, workers, images):
        """With the waits. Workers find the batch by a look, and the end of each stage. Looks become rarer while they wait."""
        waits = LOOK + sum(min(LOOK, seconds) for seconds in self.stages(workers, images).values())
        return sum(self.stages(workers, images).values()) + waits * (1 - 1 / workers)


def table(rows):
    by_workers = {row["workers"]: row for row in rows}
    one, model = by_workers[1], Computed(by_workers[1], by_workers[2])
    print("\n| workers | seconds | times as fast | computed | difference | CPU s |\n|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        seconds = model.seconds(row["workers"], row["images"])
        print(f"| {row['workers']} | {row['wall']:.1f} | {one['wall'] / row['wall']:.2f} | {seconds:.1f} | "
              f"{(seconds / row['wall'] - 1) * 100:+.0f} % | {row['cpu']:.1f} |")
    print("\n| workers | images | seconds, computed | MB/s of all |\n|---:|---:|---:|---:|")
    for workers in (1, 2, 4, 8, 16, 32, 64, 100):
        images = workers * one["images"]
        seconds = model.seconds(workers, images)
        print(f"| {workers} | {images} | {seconds:.1f} | {one['read'] * workers / seconds / 1e6:.1f} |")


if __name__ == "__main__":
    main()
