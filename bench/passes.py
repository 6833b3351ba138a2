#!/usr/bin/env python3
"""What a pass after each backup costs, by the rate of change: CPU of passes by that of backups.

    bench/passes.py                                 1, 3 and 8 % of 4 KiB pages in each of 12 versions of 256 MiB
    bench/passes.py --rates 1 --versions 20 --mib 128
    bench/passes.py --layouts lifecycle --sets pages tree

Each rate is measured with `optimize` and with `optimize --auto`. `pages` is a file of which pages change anywhere. `tree` has files of 16
KiB, of which the given share is written again, each whole. A half of all can be compressed.
CPU is user and system time. The first version counts as a backup. "Held" is what the data containers of the newest version hold, by
what it uses of them, after each pass. A key file opens the repository, so that no password is derived. The program is that of
BENCH_LARDER (default: target/release/larder).
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import tempfile

PAGE = 4096
LARDER = os.environ.get("BENCH_LARDER", "target/release/larder")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 3.0, 8.0], help="changed pages of each version, percent")
    parser.add_argument("--versions", type=int, default=12)
    parser.add_argument("--mib", type=int, default=256, help="size of the file")
    parser.add_argument("--layouts", nargs="+", choices=["standard", "lifecycle"], default=["standard"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["pages"])
    args = parser.parse_args()
    print("| set | layout | changed | pass | backups, CPU s | passes, CPU s | ratio | held, mean | held, most | repository, MB |")
    print("|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for name in args.sets:
        for layout in args.layouts:
            for rate in args.rates:
                for options in ([], ["--auto"]):
                    measure(args, name, layout, rate, options)


def page(rng):
    return rng.randbytes(PAGE // 2) + bytes(PAGE // 2)


class Pages:
    """A file of pages."""

    def __init__(self, path, size, rng):
        self.path, self.rng, self.count = path, rng, size // PAGE
        path.write_bytes(b"".join(page(rng) for _ in range(self.count)))

    def change(self, rate):
        with open(self.path, "r+b") as file:
            for number in self.rng.sample(range(self.count), round(self.count * rate / 100)):
                file.seek(number * PAGE)
                file.write(page(self.rng))


class Tree:
    """Files of four pages in folders of a hundred."""

    def __init__(self, path, size, rng):
        self.path, self.rng, self.count = path, rng, size // (4 * PAGE)
        for number in range(self.count):
            self.write(number)

    def write(self, number):
        file = self.path / str(number // 100) / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(page(self.rng) for _ in range(4)))

    def change(self, rate):
        for number in self.rng.sample(range(self.count), round(self.count * rate / 100)):
            self.write(number)


SETS = {"pages": Pages, "tree": Tree}


def measure(args, name, layout, rate, options):
    rng = random.Random(rate)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        env = dict(os.environ, HOME=folder, LARDER_REPOSITORY=str(work / "repository"))

        def run(*line, **more):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            ran = subprocess.run([LARDER, *line], env=dict(env, **more), check=True, cwd=folder, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return ran.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        def held():
            """What the newest version's containers hold, by its table: no page comes twice."""
            table = json.loads(run("cat", "manifest", newest())[0])["containers"]
            data = [row for row in table if row["container"].startswith("data/")]
            return sum(row["bytes_held"] for row in data) / sum(row["bytes_used"] for row in data)

        def newest():
            return json.loads(run("snapshots", "--json", "--no-free")[0])[-1]["id"]

        run("init", LARDER_PASSWORD="x")
        run("key", "add", "--file", str(work / "key"), LARDER_PASSWORD="x")
        env["LARDER_KEY_FILE"] = str(work / "key")
        source = SETS[name](work / "source", args.mib << 20, rng)
        backups, passes, all_held = 0, 0, []
        for version in range(args.versions):
            if version:
                source.change(rate)
            backups += run("backup", "--layout", layout, "source")[1]
            passes += run("optimize", *options)[1]
            all_held.append(held())
        data = sum(file.stat().st_size for file in (work / "repository").rglob("*") if file.is_file())
        mean = sum(all_held) / len(all_held)
        print(
            f"| {name} | {layout} | {rate:g} % | {' '.join(['optimize', *options])} | {backups:.2f} | {passes:.2f} | {passes / backups:.2f} "
            f"| {mean:.2f} | {max(all_held):.2f} | {data / 1e6:.0f} |",
            flush=True,
        )


main()
