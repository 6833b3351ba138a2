#!/usr/bin/env python3
"""What scattered changes of a large file cost in metadata.

    bench/metadata.py                                     1 % of 4 KiB blocks in each of 40 versions
    bench/metadata.py --rates 0.1 1 3 --passes            three rates, with a pass after each backup
    bench/metadata.py --kind sqlite                       the file is one of SQLite, which is cut at its pages

The file has random bytes, so new data cannot be compressed. `noise` is cut by content: a changed block is in two or three chunks. With
the header of SQLite, it is in one. Shares are of the changed bytes, and of the growth of `data`. Metadata are all objects in `meta` and `versions`. The program is that
of BENCH_LARDER (default: target/release/larder).
"""

import argparse
import os
import pathlib
import random
import subprocess
import tempfile

BLOCK = 4096


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="changed blocks of each version, percent")
    parser.add_argument("--versions", type=int, default=40)
    parser.add_argument("--mib", type=int, default=64, help="size of the file")
    parser.add_argument("--kind", nargs="+", choices=["noise", "sqlite"], default=["noise", "sqlite"])
    parser.add_argument("--passes", action="store_true", help="`optimize` after each backup")
    args = parser.parse_args()
    print("| file | changed | versions | changed bytes | metadata of later versions | of changed bytes | largest | of the growth of data | data / changed |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for kind in args.kind:
        for rate in args.rates:
            measure(args, kind, rate)


def header(pages):
    """The first page of a database with pages of 4 KiB."""
    start = b"SQLite format 3\0" + BLOCK.to_bytes(2, "big") + bytes([1, 1, 0, 64, 32, 32])
    return (start + bytes(4) + pages.to_bytes(4, "big")).ljust(BLOCK, b"\0")


def measure(args, kind, rate):
    larder = os.environ.get("BENCH_LARDER", "target/release/larder")
    rng = random.Random(rate)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        env = dict(os.environ, LARDER_PASSWORD="x", HOME=folder, LARDER_REPOSITORY=str(work / "repository"))

        def run(*verb):
            subprocess.run([larder, "-q", *verb], env=env, check=True, cwd=folder, stdout=subprocess.DEVNULL)

        def size(*names):
            files = (file for name in names for file in (work / "repository" / name).rglob("*") if file.is_file())
            return sum(file.stat().st_size for file in files)

        content = bytearray(rng.randbytes(args.mib << 20))
        first = 1 if kind == "sqlite" else 0
        if kind == "sqlite":
            content[:BLOCK] = header(len(content) // BLOCK)
        changed = round(len(content) / BLOCK * rate / 100)
        run("init", "--insecure-kdf")
        sizes = []
        for version in range(args.versions):
            for block in rng.sample(range(first, len(content) // BLOCK), changed if version else 0):
                content[block * BLOCK : (block + 1) * BLOCK] = rng.randbytes(BLOCK)
            (work / "file").write_bytes(content)
            run("backup", "file")
            if args.passes:
                run("optimize")
            sizes.append((size("meta", "versions"), size("data")))
        run("check")
        new = changed * BLOCK
        grown = [after[0] - before[0] for before, after in zip(sizes, sizes[1:])]
        mean, data = sum(grown) / len(grown), (sizes[-1][1] - sizes[0][1]) / len(grown)
        shares = f"{mean / new:.1%} | {max(grown) / new:.1%} | {mean / data:.1%} | {data / new:.2f}"
        print(f"| {kind} | {rate:g} % | {args.versions} | {new:,} | {mean:,.0f} | {shares} |", flush=True)


main()
