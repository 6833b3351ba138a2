#!/usr/bin/env python3
"""What batches of a fleet of disk images take: images of a Debian tree, over days of upgrades.

    bench/fleet/run.py TREE.tar                       8 images, 3 days
    bench/fleet/run.py TREE.tar --images 16 --days 5

Each image is an ext4 file system with the tree, files of its own, and free space. Each day, all images get the same new versions of
some programs, and each some files of its own. So days are like nights of upgrades. The same images are backed up one after another
with `backup --image` into another repository, each with a pass at the end of the day. Prints a line of JSON for each day: the
content of all images, the chunks that were stored of it, what exact deduplication of the same chunks would store (`exact`),
metadata containers, wall, CPU and memory. The program is that of BENCH_LARDER (default: target/release/larder). What is exact
says the example `distinct` of larder-gnode, in the folder `examples` beside it: without that one, there is no `exact`.
Needs mke2fs and debugfs, and 1 GB for each image.

    cargo build --release -p larder-gnode --features measure --example distinct
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import tarfile
import tempfile
import time

SIZE = 512 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path, help="a tar file, such as that of debootstrap")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--upgrades", type=int, default=60, help="files that are upgraded each day, in all images")
    args = parser.parse_args()
    larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        with tarfile.open(args.tree) as tar:
            tar.extractall(work / "tree", filter="tar")
        programs = sorted(p for p in (work / "tree/usr").rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_size > 20_000)
        images = [Image(work, number) for number in range(args.images)]
        fleet, plain = Repository(larder, work, "fleet"), Repository(larder, work, "plain")
        (work / "images.toml").write_text(f'[[image]]\nsource = "{work}/vm-*.raw"\n')
        chunks = {"all": 0, "exact": 0}
        for day in range(args.days):
            if day > 0:
                upgrade(work, images, programs, args.upgrades, day)
            content = sum(image.path.stat().st_blocks * 512 for image in images)
            begin = fleet.usage()
            out = fleet.run("fleet", "run", work / "images.toml", "--json")
            summary = next(line for line in messages(out) if line["message_type"] == "fleet_summary")
            wall, cpu = (b - a for a, b in zip(begin, fleet.usage()))
            begin = plain.usage()
            added = 0
            for image in images:
                out = plain.run("backup", "--json", "--image", image.path, "--series", f"vm/{image.path.stem}")
                added += next(line for line in messages(out) if line["message_type"] == "summary")["data_added"]
            plain.run("optimize", "--json")
            plain_wall, plain_cpu = (b - a for a, b in zip(begin, plain.usage()))
            stored, exact = fleet.chunks()
            print(json.dumps({
                "day": day,
                "content": content,
                "read": summary["read_bytes"],
                "read_again": summary["reread_bytes"],
                "new": summary["data_added"],
                "stored": summary["data_added_packed"],
                "chunks": None if stored is None else stored - chunks["all"],
                "exact": None if exact is None else exact - chunks["exact"],
                "removed": round(1 - summary["data_added"] / content, 4),
                "new_one_by_one": added,
                "wall": round(wall, 2),
                "cpu": round(cpu, 2),
                "wall_one_by_one": round(plain_wall, 2),
                "cpu_one_by_one": round(plain_cpu, 2),
                "memory": summary["memory_bytes"],
                "repository": fleet.size(),
                "repository_one_by_one": plain.size(),
                "recipes": fleet.size("meta"),
                "recipes_one_by_one": plain.size("meta"),
            }), flush=True)
            chunks = {"all": stored, "exact": exact}
        fleet.run("check", "--read-data")
        for image in images[:2]:
            (work / "back").unlink(missing_ok=True)
            dumped = fleet.run("dump", "latest", "--series", f"vm/{image.path.stem}", image.path)
            assert dumped == image.path.read_bytes(), image.path


def messages(out):
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


class Image:
    def __init__(self, work, number):
        self.path = work / f"vm-{number:02}.raw"
        own = random.Random(number)
        (work / "tree/etc/hostname").write_text(f"vm-{number:02}\n")
        (work / "tree/var/own").write_bytes(own.randbytes(4 << 20))
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", work / "tree", self.path, str(SIZE >> 10) + "k"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def replace(self, files):
        commands = "".join(f"rm {inside}\nwrite {outside} {inside}\n" for outside, inside in files)
        subprocess.run(["debugfs", "-w", "-f", "-", self.path], input=commands.encode(), check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def upgrade(work, images, programs, count, day):
    chosen = random.Random(1000 + day)
    files = []
    for program in chosen.sample(programs, min(count, len(programs))):
        new = bytearray(program.read_bytes())
        # A third of it is new.
        for _ in range(max(1, len(new) // 12_000)):
            at = chosen.randrange(len(new))
            new[at:at + 4096] = chosen.randbytes(min(4096, len(new) - at))
        program.write_bytes(new)
        files.append((program, "/" + str(program.relative_to(work / "tree"))))
    for number, image in enumerate(images):
        log = work / f"log-{number}"
        log.write_bytes(random.Random(day * 1000 + number).randbytes(256 << 10))
        image.replace([*files, (log, f"/var/log/day-{day}")])


class Repository:
    def __init__(self, larder, work, name):
        self.larder, self.path = larder, work / name
        self.environment = os.environ | {
            "LARDER_REPOSITORY": str(self.path), "LARDER_PASSWORD": "bench", "LARDER_CACHE": str(work / f"cache-{name}"),
        }
        self.run("init", "--insecure-kdf")

    def run(self, *args):
        return subprocess.run([self.larder, *args], env=self.environment, check=True, stdout=subprocess.PIPE).stdout

    def usage(self):
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.perf_counter(), children.ru_utime + children.ru_stime

    def size(self, folder="."):
        return sum(path.stat().st_size for path in (self.path / folder).rglob("*") if path.is_file())

    def chunks(self):
        """Bytes of all stored chunks, and of the distinct ones. No snapshot is forgotten here, so none has left."""
        distinct = self.larder.parent / "examples/distinct"
        if not distinct.exists():
            return None, None
        return map(int, subprocess.run([distinct, self.path], env=self.environment, check=True, stdout=subprocess.PIPE).stdout.split())


main()
