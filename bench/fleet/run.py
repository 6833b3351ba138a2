#!/usr/bin/env python3
"""Backs up a fleet of disk images each day, while its guests are upgraded.

    bench/fleet/make.py FLEET                         once; see there
    bench/fleet/run.py FLEET                          16 images of 1 GiB, 10 days: some 20 GB of disk, 15 minutes
    bench/fleet/run.py FLEET --images 2 --days 2 --mib 64

On each day, one `larder fleet run` backs up all images into one repository, and `larder optimize` adds them to the index. Beside
it, `backup --image` backs up one image after the other into a second repository (`--alone` leaves that out). Prints a line of
JSON for each day; `results/` has some. At the end, all content is checked, and images are compared with dumps.

The program is that of BENCH_LARDER (default: target/release/larder). The example `distinct` of larder-gnode, in the folder
`examples` beside it or BENCH_DISTINCT, says what exact deduplication would store: without it, there is no `exact`.

    cargo build --release -p larder-gnode --features measure --example distinct
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from guests import Fleet
from harness import measuring
from harness.measuring import Command

KEYS = ("wall", "cpu", "rss", "noise")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", type=pathlib.Path, help="a folder that make.py made")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--mib", type=int, default=1024, help="size of an image")
    parser.add_argument("--work", type=pathlib.Path, help="existing folder for images and repositories")
    parser.add_argument("--alone", action="store_true", help="only the batches")
    args = parser.parse_args()
    larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = pathlib.Path(folder)
        fleet = Fleet(args.fleet.resolve(), work, args.images, args.mib)
        (work / "images.toml").write_text(f'[[image]]\nsource = "{work}/*/*.raw"\n')
        batches = Batches(larder, work, "fleet")
        others = None if args.alone else OneByOne(larder, work, "plain")
        content = 0
        for day in range(args.days):
            packages = fleet.advance(day) if day > 0 else 0
            row = {"day": day, "images": args.images, "packages": packages, "logical": fleet.logical(), "content": fleet.content()}
            content += row["content"]
            row |= batches.day(fleet)
            row["removed"] = round(1 - batches.size() / content, 4)
            row["removed_today"] = round(1 - row["added"] / row["content"], 4)
            if others:
                row["one_by_one"] = others.day(fleet)
            print(json.dumps(row), flush=True)
        checked = batches.run("check", "--read-data")
        for image in fleet.images[:: max(1, args.images // 3)]:
            batches.same(image)
        print(json.dumps({"checked": True, "cpu": round(checked.cpu, 2)}), flush=True)


class Repository:
    def __init__(self, larder, work, name):
        self.larder, self.work, self.path, self.before = larder, work / f"{name}-work", work / name, 0
        self.environment = {
            "LARDER_REPOSITORY": str(self.path), "LARDER_PASSWORD": "bench", "LARDER_CACHE_DIR": str(self.work / "cache"),
            "LARDER_STATE": str(self.work / "state"),
        }
        self.run("init")

    def run(self, *words):
        return measuring.run(Command([self.larder, *words]), self.environment, self.work)

    def size(self, folder="."):
        return sum(path.stat().st_size for path in (self.path / folder).rglob("*") if path.is_file())

    def grown(self):
        """Bytes of the repository, all objects included, and those that came since the last time."""
        size, before = self.size(), self.before
        self.before = size
        return {"repository": size, "added": size - before, "metadata": size - self.size("data")}

    def chunks(self):
        """Bytes of all stored chunks, and of the distinct ones. No snapshot is forgotten here, so none has left."""
        distinct = pathlib.Path(os.environ.get("BENCH_DISTINCT", self.larder.parent / "examples/distinct"))
        if not distinct.exists():
            return {}
        environment = os.environ | self.environment
        ended = subprocess.run([distinct, self.path], env=environment, check=True, stdout=subprocess.PIPE)
        return dict(zip(("chunks", "exact"), map(int, ended.stdout.split())))


class Batches(Repository):
    def day(self, fleet):
        ran = self.run("fleet", "run", self.path.parent / "images.toml", "--no-pass", "--json")
        summary = message(ran.output, "fleet_summary")
        status = message(self.run("fleet", "status", summary["batch"], "--json").output, "fleet_status")
        passed = self.run("optimize", "--json")
        return {
            **cost(ran),
            "pass": cost(passed),
            "read": summary["read_bytes"],
            "read_again": summary["reread_bytes"],
            "new": summary["data_added"],
            "packed": summary["data_added_packed"],
            **self.grown(),
            **self.chunks(),
            "stages": stages(status),
        }

    def same(self, image):
        environment = os.environ | self.environment
        dump = [self.larder, "dump", "latest", "--series", f"vm/{image.name}", image.path]
        with subprocess.Popen(dump, env=environment, stdout=subprocess.PIPE) as process:
            subprocess.run(["cmp", "-", image.path], stdin=process.stdout, check=True)
        assert process.returncode == 0, image.name


class OneByOne(Repository):
    def day(self, fleet):
        ran, new = [], 0
        for image in fleet.images:
            ran.append(self.run("backup", "--json", "--image", image.path, "--series", f"vm/{image.name}"))
            new += message(ran[-1].output, "summary")["data_added"]
        passed = self.run("optimize", "--json")
        return {**together(ran), "pass": cost(passed), "new": new, **self.grown()}


def message(output, kind):
    rows = (json.loads(line) for line in output.splitlines() if line.startswith(("{", "[")))
    rows = (row for found in rows for row in (found if isinstance(found, list) else [found]))
    return next(row for row in rows if row["message_type"] == kind)


def stages(status):
    """Of each stage: its seconds, the most memory of a process so far, and bytes for other tasks."""
    found = {}
    for row in status["stages"]:
        old = found.get(row["stage"], {"seconds": 0, "rss": 0, "output": 0})
        found[row["stage"]] = {
            "seconds": round(old["seconds"] + row["seconds"], 3),
            "rss": max(old["rss"], row["memory_bytes"]),
            "output": old["output"] + row["output_bytes"],
        }
    return found


def cost(ran):
    """Seconds of a clock and of the processor, the most memory, and the share of the machine that others took."""
    return {key: round(getattr(ran, key), 3) if key != "rss" else ran.rss for key in KEYS}


def together(runs):
    """The cost of runs one after the other."""
    return {
        "wall": round(sum(run.wall for run in runs), 3),
        "cpu": round(sum(run.cpu for run in runs), 3),
        "rss": max(run.rss for run in runs),
        "noise": round(max(run.noise for run in runs), 3),
    }


if __name__ == "__main__":
    main()
