#!/usr/bin/env python3
"""Measures volumes beside other block devices: same data, same client, same run.

    generate.py /data --size 1024
    run.py --data /data --work /disk/work [--systems larder,raw,qcow2,zfs,btrfs] [--repeat 3] [--cold] [--copies]
        [--json FILE]

| step | what it does |
|---|---|
| first | nbdcopy of first.img with four connections into an empty disk, and a flush |
| second | the same with second.img into another disk of the same store |
| in place | first.img over a clone of the first disk: nothing changes (only systems with clones) |
| read | nbdcopy of the first disk to nothing, compared with the image before |
| 4k write, 4k read | fio, random, depth 16, ten seconds each, on the second disk |
| 4k sync | fio, one write and one flush in turn |
| start | after kill -9 of the server: until a client reads the first sector |

`--copies` leaves out the steps with fio. `--cold` restarts the server and drops the caches of the kernel between steps (root). Rates are MB/s or requests a second;
medians of the repetitions. `stored` counts all bytes on disk after both generations.
generate.py hides: 100 % means that every redundant byte was found, and compression counts in addition.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

import systems

SECONDS = 10


def nbdcopy(*words):
    start = time.monotonic()
    systems.run("nbdcopy", "--connections=4", "--requests=16", *words)
    return time.monotonic() - start


def fio(uri, *words):
    command = ["fio", "--output-format=json", "--name=x", "--ioengine=nbd", f"--uri={uri}", "--bs=4k", "--time_based",
               f"--runtime={SECONDS}", "--randrepeat=1", "--refill_buffers=1", "--buffer_compress_percentage=50", *words]
    text = systems.run(*command)
    # Notes may come first.
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return job["read"]["iops"] + job["write"]["iops"]


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


class Run:
    def __init__(self, system, args, truth):
        self.system, self.args, self.truth = system, args, truth
        self.result = {}

    def step(self, name, work, amount):
        cpu, _ = self.system.usage()
        start = time.monotonic()
        work()
        wall = time.monotonic() - start
        after, peak = self.system.usage()
        self.result[name] = {"rate": amount / wall / 1e6, "cpu": after - cpu, "peak": peak}

    def again(self, disks):
        """Other processes and an empty page cache, if asked for."""
        if self.args.cold:
            self.system.stop()
            drop_caches()
            self.system.start(disks)

    def all(self):
        system, size = self.system, self.truth["size"]
        first, second = self.args.data / "first.img", self.args.data / "second.img"
        disks = ["one", "two"]
        for disk in disks:
            system.create(disk, size)
        if system.can_clone:
            disks.append("three")
        system.start(disks[:2])
        self.step("first", lambda: nbdcopy("--flush", first, system.uri("one")), size)
        self.again(disks[:2])
        self.step("second", lambda: nbdcopy("--flush", second, system.uri("two")), size)
        self.step("settle", system.settle, 0)
        system.stop()
        self.result["stored"] = system.bytes()
        if system.can_clone:
            system.clone("three", "one")
        if self.args.cold:
            drop_caches()
        system.start(disks)
        if system.can_clone:
            self.step("in place", lambda: nbdcopy("--flush", first, system.uri("three")), size)
        self.again(disks)
        systems.run("nbdcopy", system.uri("one"), self.args.work / "copy")
        systems.run("cmp", first, self.args.work / "copy")
        (self.args.work / "copy").unlink()
        self.again(disks)
        self.step("read", lambda: nbdcopy(system.uri("one"), "null:"), size)
        steps = [] if self.args.copies else [("4k write", ["--rw=randwrite", "--iodepth=16"]), ("4k read", ["--rw=randread", "--iodepth=16"]),
                                             ("4k sync", ["--rw=randwrite", "--iodepth=1", "--fsync=1"])]
        for name, words in steps:
            cpu, _ = system.usage()
            rate = fio(system.uri("two"), *words)
            after, peak = system.usage()
            self.result[name] = {"rate": rate, "cpu": after - cpu, "peak": peak}
        system.stop(signal.SIGKILL)
        start = time.monotonic()
        system.start(disks)
        systems.run("nbdinfo", "--size", system.uri("one"))
        self.result["start"] = {"rate": time.monotonic() - start, "cpu": 0, "peak": 0}


STEPS = ["first", "second", "in place", "read", "4k write", "4k read", "4k sync", "start"]


def median(results, step, what):
    found = [result[step][what] for result in results if step in result]
    return statistics.median(found) if found else None


def table(found, truth):
    print("| system | " + " | ".join(STEPS) + " | stored MB | CPU s of first, second | peak MB |")
    print("|---|" + "---:|" * (len(STEPS) + 3))
    for name, results in found.items():
        rates = [median(results, step, "rate") for step in STEPS]
        cells = ["-" if rate is None else f"{rate:.2f} s" if step == "start" else f"{rate:,.0f}" for step, rate in zip(STEPS, rates)]
        bytes_ = statistics.median(result["stored"] for result in results)
        cpu = ", ".join(f"{median(results, step, 'cpu'):.1f}" for step in ("first", "second"))
        peak = max(result[step]["peak"] for result in results for step in STEPS if step in result)
        print(f"| {name} | {' | '.join(cells)} | {bytes_ / 1e6:,.0f} | {cpu} | {peak / 1e6:,.0f} |")
    both = truth["unique_first"] + truth["unique_second"]
    print(f"\nEach generation has {truth['size'] / 1e6:,.0f} MB; {both / 1e6:,.0f} MB of both are unique before compression.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--systems", default="larder,raw,qcow2,zfs,btrfs")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--copies", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    truth = json.loads((args.data / "truth.json").read_text())
    found = {}
    for repetition in range(args.repeat):
        names = args.systems.split(",")
        # Tools take turns, so that a disturbance hits all of them.
        names = names[repetition % len(names) :] + names[: repetition % len(names)]
        for name in names:
            kind = systems.ALL[name]
            if missing := kind.missing():
                print(f"{kind.name} is left out: {', '.join(missing)} is missing")
                continue
            args.work.mkdir(parents=True, exist_ok=True)
            system = kind(args.work / name)
            try:
                run = Run(system, args, truth)
                run.all()
                found.setdefault(kind.name, []).append(run.result)
            finally:
                system.close()
    table(found, truth)
    if args.json:
        args.json.write_text(json.dumps({"truth": truth, "results": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
