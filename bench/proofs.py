#!/usr/bin/env python3
"""What share of unchanged bytes a backup proves by MACs or predicted chunks, when pages change anywhere.

    bench/proofs.py                                   all sets, 1, 5 and 15 % of the pages, both layouts, 5 versions of 64 MiB
    bench/proofs.py --sets sqlite --rates 5 --versions 8
    bench/proofs.py --cpu --mib 256 --versions 7      CPU seconds of a later backup, with runs and without

Sets: `sqlite` is a database of SQLite in which rows are updated; `postgres` has pages of 8 KiB with headers like PostgreSQL's; `image` is
a raw image of 4 KiB blocks. Unchanged bytes are those of pages that equal the version before. Proved bytes are `predicted_bytes` of the
summary. With --cpu, the ways take turns at each version, and the median of all later backups counts; `never` is `--merge-after never`.
The program is that of BENCH_LARDER (default: target/release/larder), and with --cpu also that of BENCH_LARDER_OTHER, if it is set.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import sqlite3
import statistics
import subprocess
import tempfile

LARDER = os.environ.get("BENCH_LARDER", "target/release/larder")


class Sqlite:
    page = 4096

    def __init__(self, path, size, rng):
        self.path, self.rng, self.rows = path, rng, size // 1100
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a BLOB)")
            db.executemany("INSERT INTO t (a) VALUES (?)", ((rng.randbytes(1000),) for _ in range(self.rows)))
        db.close()

    def change(self, rate):
        # Three rows are in a page.
        with sqlite3.connect(self.path) as db:
            changed = self.rng.sample(range(1, self.rows + 1), round(self.rows / 3 * rate / 100))
            db.executemany("UPDATE t SET a = ? WHERE id = ?", ((self.rng.randbytes(1000), row) for row in changed))
        db.close()


class Pages:
    def __init__(self, path, size, rng):
        self.path, self.rng, self.count = path, rng, size // self.page
        path.write_bytes(b"".join(self.made(number) for number in range(self.count)))

    def change(self, rate):
        with open(self.path, "r+b") as file:
            for number in self.rng.sample(range(self.count), round(self.count * rate / 100)):
                file.seek(number * self.page)
                file.write(self.made(number))


class Postgres(Pages):
    page = 8192

    def made(self, number):
        log, free = self.rng.getrandbits(40), 24 + 4 * 28
        header = log.to_bytes(8, "little") + bytes(4) + free.to_bytes(2, "little") + (800).to_bytes(2, "little")
        header += (8192).to_bytes(2, "little") + (8196).to_bytes(2, "little") + bytes(4)
        return header + bytes(4 * 28) + bytes(800 - free) + self.rng.randbytes(8192 - 800)


class Image(Pages):
    page = 4096

    def made(self, number):
        return self.rng.randbytes(self.page)


SETS = {"sqlite": Sqlite, "postgres": Postgres, "image": Image}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 5.0, 15.0], help="changed pages of each version, percent")
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--mib", type=int, default=64, help="size of the file")
    parser.add_argument("--layouts", nargs="+", choices=["standard", "lifecycle"], default=["standard", "lifecycle"])
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of later backups, in the layout `standard`")
    args = parser.parse_args()
    if args.cpu:
        return compare(args)
    later = [f"v{number}" for number in range(2, args.versions + 1)]
    print("| set | layout | changed | " + " | ".join(later) + " |\n|---|---|---:|" + "---:|" * len(later))
    for name in args.sets:
        for layout in args.layouts:
            for rate in args.rates:
                measure(args, name, layout, rate)


def measure(args, name, layout, rate):
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        env = dict(os.environ, LARDER_PASSWORD="x", HOME=folder, LARDER_REPOSITORY=str(work / "repository"))
        path = work / "file"
        source = SETS[name](path, args.mib << 20, random.Random(rate))

        def run(*line):
            return subprocess.run([LARDER, *line], env=env, check=True, cwd=folder, capture_output=True).stdout

        run("init", "--insecure-kdf")
        before, shares = None, []
        for version in range(args.versions):
            if version:
                source.change(rate)
            content = path.read_bytes()
            summary = json.loads(run("backup", "--json", "--layout", layout, "file").splitlines()[-1])
            if before is not None:
                starts = range(0, min(len(before), len(content)), source.page)
                unchanged = sum(source.page for at in starts if before[at : at + source.page] == content[at : at + source.page])
                shares.append(summary["predicted_bytes"] / unchanged)
            before = content
        print(f"| {name} | {layout} | {rate:g} % | " + " | ".join(f"{share:.0%}" for share in shares) + " |", flush=True)


def compare(args):
    programs = {"": LARDER} | ({"other, ": other} if (other := os.environ.get("BENCH_LARDER_OTHER")) else {})
    ways = {(name, merge): [program, *merge] for name, program in programs.items() for merge in ((), ("--merge-after", "never"))}
    names = [f"{name}{'never' if merge else 'runs'}" for name, merge in ways]
    print("| set | changed | " + " | ".join(names) + " |\n|---|---:|" + "---:|" * len(names))
    for name in args.sets:
        for rate in args.rates:
            with tempfile.TemporaryDirectory() as folder:
                work = pathlib.Path(folder)
                source = SETS[name](work / "file", args.mib << 20, random.Random(rate))
                spent = {way: [] for way in ways}
                for version in range(args.versions):
                    if version:
                        source.change(rate)
                    for number, (way, (program, *merge)) in enumerate(ways.items()):
                        env = dict(os.environ, LARDER_PASSWORD="x", HOME=str(work / f"home{number}"), LARDER_REPOSITORY=str(work / f"repository{number}"))

                        def run(*line):
                            subprocess.run([program, *line], env=env, check=True, cwd=folder, capture_output=True)

                        if not version:
                            (work / f"home{number}").mkdir()
                            run("init", "--insecure-kdf")
                        before = resource.getrusage(resource.RUSAGE_CHILDREN)
                        run("backup", *merge, "file")
                        after = resource.getrusage(resource.RUSAGE_CHILDREN)
                        spent[way].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
                medians = (statistics.median(times[1:]) for times in spent.values())
                print(f"| {name} | {rate:g} % | " + " | ".join(f"{cpu:.3f}" for cpu in medians) + " |", flush=True)


main()
