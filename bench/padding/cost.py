#!/usr/bin/env python3
"""Prints the cost of padding: bytes of a repository with it, without it, and by another rule.

    bench/padding/cost.py bench/data/small/db bench/data/small/image bench/data/full/tars

Each folder has versions `v01`, `v02`, … as bench/data.py makes them. All are backed up in turn into one repository, and measured;
then `optimize` runs, and what is stored is measured again. Only lengths differ between the rules: the objects are the same.
BENCH_LARDER names the program; tools/requirements.txt lists the modules of the reader.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lengths import Larder, padme

CLASSES = [("below 64 KiB", 64 << 10), ("64 to 512 KiB", 512 << 10), ("512 KiB to 4 MiB", 4 << 20), ("4 MiB and more", 1 << 40)]
HEAD = "| set | state | objects | number | without padding | padded | added | by Padmé | added |\n|---|---|---|---:|---:|---:|---:|---:|---:|"


def percent(part, whole):
    return f"{100 * part / whole:.2f} %" if whole else ""


def line(where, what, rows):
    """One line of the table; lengths in KiB. Padmé applies to what Larder pads."""
    plain, ours = sum(row.plain for row in rows), sum(row.length for row in rows)
    other = sum(padme(row.plain) if row.folder in ("data", "meta", "versions") else row.length for row in rows)
    print(f"| {where} | {what} | {len(rows)} | {plain / 1024:,.1f} | {ours / 1024:,.1f} | {percent(ours - plain, plain)} | {other / 1024:,.1f} | {percent(other - plain, plain)} |")


def table(where, objects):
    containers = [found for found in objects if found.folder in ("data", "meta")]
    least = 0
    for name, limit in CLASSES:
        some = [found for found in containers if least <= found.length < limit]
        least = limit
        if some:
            line(where, f"containers {name}", some)
    line(where, "manifests", [found for found in objects if found.folder == "versions"])
    line(where, "**all objects**", objects)
    sys.stdout.flush()


def measure(folder, count, layout, work):
    larder, source = Larder(work), work / "source"
    for version in sorted(folder.glob("v[0-9]*"))[:count]:
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(version, source)
        larder.run("backup", "--series", folder.name, "--layout", layout, source)
    table(f"{folder.name} | backups", list(larder.objects()))
    larder.run("optimize")
    table(f"{folder.name} | optimized", list(larder.objects()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--layout", choices=["standard", "lifecycle"], default="standard")
    parser.add_argument("--work", type=Path, help="folder for repositories; default: that for temporary files")
    args = parser.parse_args()
    print(HEAD, flush=True)
    for folder in args.sets:
        work = Path(tempfile.mkdtemp(dir=args.work))
        try:
            measure(folder.resolve(), args.versions, args.layout, work)
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
