#!/usr/bin/env python3
"""Runs backup tools beside one another on the same data and prints what each cost.

    python3 bench/run.py --set db --scale small --tools larder,restic,borg --repeat 3 --restore
    python3 bench/run.py --set tree8600 --tools larder,restic,bupstash --repeat 5
    python3 bench/run.py --set listing --tools larder,restic --repeat 5

Sets: `db` and `tars` (files that change between versions), `trees` (the releases as a tree updated in place), `image` (a disk
image changed in place), `tree8600` (many small files, one version), `large` (one big file, one version), `listing` (a hundred
tiny versions). Make the data first: `python3 bench/data.py --scale small`. See bench/README.md for how to read the results.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tools as adapters
from harness import report, s3
from harness.flows import Bench
from harness.source import Source, data_set
from harness.trash import Trash
from sets import base

HERE = Path(__file__).resolve().parent
VERSIONED = ("db", "tars", "trees", "image")
# Sets of one version, and the set on disk whose first version they use.
SINGLE = {"tree8600": "tree8600", "large": "db"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", required=True, choices=[*VERSIONED, *SINGLE, "listing"])
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--tools", default="larder,restic", help=f"of {', '.join(adapters.names())}, separated by commas; or `all`")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, each with fresh repositories")
    parser.add_argument("--versions", type=int, help="only the first K versions; for `listing`, how many there are (100)")
    parser.add_argument("--restore", action="store_true", help="restore the newest and the first version too, and compare them")
    parser.add_argument("--forget", action="store_true", help="forget the older half of the versions and free its space")
    parser.add_argument("--passes", action="store_true", help="after every backup the offline pass of those tools that have one")
    parser.add_argument("--store", choices=["local", "s3"], default="local", help="s3 starts a MinIO server of its own")
    parser.add_argument("--target", choices=["disk", "tmpfs"], default="disk", help="where the versions of a set are restored to")
    parser.add_argument("--drop-caches", action="store_true", help="forget the page cache before every step (needs root)")
    parser.add_argument("--work", type=Path, default=HERE / "results" / "tmp", help="folder for repositories, sources and targets")
    parser.add_argument("--keep", action="store_true", help="leave the repositories of the last repetition")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


def pick_tools(names, store):
    """The adapter classes asked for. A tool that is not here is named and left out; so is one without this kind of store."""
    picked = []
    for name in adapters.names() if names == "all" else names.split(","):
        if name not in adapters.names():
            raise SystemExit(f"no adapter for {name}; there are {', '.join(adapters.names())}")
        cls = adapters.load(name)
        if cls.program() is None:
            print(f"{name}: not installed, left out (bench/install-peers.sh installs the peers)", file=sys.stderr)
        elif store not in cls.stores:
            print(f"{name}: has no {store} store, left out", file=sys.stderr)
        else:
            picked.append(cls)
    if not picked:
        raise SystemExit("none of the tools is here")
    return picked


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    args = arguments()
    # Being told to end is like Ctrl-C: the tool is ended, what was measured is reported, the folders are removed.
    signal.signal(signal.SIGTERM, interrupt)
    args.work = args.work.resolve() / "bench-work"
    classes = pick_tools(args.tools, args.store)
    versions = []
    if args.set != "listing":
        needed = SINGLE.get(args.set, data_set(args.set))
        versions = base.load(needed, args.scale)
        if versions is None:
            raise SystemExit(f"no data: python3 bench/data.py --scale {args.scale} --set {needed}")
        versions = versions[:1] if args.set in SINGLE else versions[: args.versions]
    # Only ever our own folder below the one given.
    trash = Trash(args.work)
    server = s3.Server(args.work / "minio") if args.store == "s3" else None
    # A set of one version is about its restore as well.
    args.restore = args.restore or args.set in SINGLE
    trash.wait()
    bench = Bench(args, classes, Source(args.set, versions, args.work, trash), server, trash)
    load = [os.getloadavg()[0]]
    try:
        if args.set in VERSIONED:
            bench.versions()
        elif args.set in SINGLE:
            bench.single()
        else:
            bench.listing(args.versions or 100)
    except KeyboardInterrupt:
        print("interrupted: what was measured so far is reported", file=sys.stderr)
        bench.failures.append("the run was interrupted")
    finally:
        if server:
            server.close()
    # Folders are left out: results are kept and shown, and say nothing about anybody's machine but its speed.
    settings = {key: value for key, value in vars(args).items() if not isinstance(value, Path)}
    run = {
        "date": report.now(),
        "settings": settings,
        "machine": report.machine(),
        "load": [*load, os.getloadavg()[0]],
        "tools": {cls.name: {"version": cls.version(), "options": cls.options} for cls in classes},
        "data": [{"label": v.label, "bytes": v.bytes, **v.facts} for v in versions],
        "failures": bench.failures,
        "records": bench.records,
    }
    page = report.write(run, args.out)
    print(page.read_text())
    print(page, file=sys.stderr)
    if args.keep:
        trash.empty()
    else:
        trash.delete(args.work)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
