#!/usr/bin/env python3
"""Backups of a large file that is, or is not, in the page cache; by several programs in turns.

    bench/uncached.py before=PATH after=PATH                medians of 5 rounds
    bench/uncached.py --work FOLDER ...                     a folder on a disk; the present one by default

The file is a database of pages of 4 KiB. `cached`: it is in the page cache. `uncached`: its pages were dropped just now, so
that the kernel has as many pages at hand. `long uncached`: some seconds ago, so that a virtual machine has given that memory
back. `first` backups have an empty repository, `again` reads the unchanged file. The last column is what the page cache has
of the file afterwards. Needs Linux, and `fincore` of util-linux.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

from restores import database, run

WAYS = ["cached", "uncached", "long uncached"]


def drop(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fetch(path):
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


def cached_mb(path):
    line = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--mib", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wait", type=float, default=8, help="seconds until memory counts as given back")
    parser.add_argument("--work", default=".", help="folder for all data")
    args = parser.parse_args()
    programs = dict(program.split("=", 1) for program in args.programs)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        measure(args, programs, pathlib.Path(folder).resolve())


def measure(args, programs, work):
    words = [random.Random(3 + n).randbytes(5).hex()[: 3 + n % 7] for n in range(4096)]
    next(database(work, args.mib, words))
    file = work / "database"
    env = dict(os.environ, LARDER_PASSWORD="x", LARDER_CACHE_DIR=str(work / "cache"), LARDER_STATE=str(work / "state"))
    print(f"| {args.mib} MiB | backup | program | seconds | CPU seconds | cached after, MB |\n|---|---|---|---:|---:|---:|")
    for way in WAYS:
        uses = {}
        for number in range(args.rounds):
            order = list(programs.items())
            for program, path in order if number % 2 == 0 else order[::-1]:
                for folder in ["repository", "cache", "state"]:
                    shutil.rmtree(work / folder, ignore_errors=True)
                line = [path, "--quiet", "--repo", str(work / "repository")]
                run([*line, "init", "--insecure-kdf"], env)
                for backup in ["first", "again"]:
                    fetch(file) if way == "cached" else drop(file)
                    time.sleep(args.wait if way == "long uncached" else 0.2)
                    wall, cpu, _ = run([*line, "backup", "--force", str(file)], env)
                    uses.setdefault((backup, program), []).append((wall, cpu, cached_mb(file)))
        for (backup, program), used in sorted(uses.items(), key=lambda use: use[0][0] == "again"):
            wall, cpu, cached = (statistics.median(values) for values in zip(*used))
            print(f"| {way} | {backup} | {program} | {wall:.2f} | {cpu:.2f} | {cached:.0f} |", flush=True)


if __name__ == "__main__":
    main()
