#!/usr/bin/env python3
"""Backs up a fleet of disk images with several programs on two days, and prints what the second day took.

    bench/fleet/make.py FLEET                         once; see there
    bench/fleet/peers.py FLEET [--tools restic,borg]  16 images of 1 GiB: some 20 GB of disk, 15 minutes

All programs but the first have one process for each image, one after the other, and one repository for all. They have the
settings of `bench/tools`, and read all of each image. `larder-fleet` is one `larder fleet run` with its pass; `larder-images` is
`backup --image` for each image, and a pass. Prints a line of JSON for each program and day.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from guests import Fleet
from harness import measuring
from run import cost, together
from tools.base import Store
from tools.borg import Borg
from tools.borg_zstd import BorgZstd
from tools.bupstash import Bupstash
from tools.larder import Larder
from tools.restic import Restic
from tools.rustic import Rustic


class LarderImages(Larder):
    name = "larder-images"

    @classmethod
    def program(cls):
        return str(pathlib.Path(os.environ.get("BENCH_LARDER", cls.binary)).absolute())

    def day(self, images):
        return [self.run("backup", "--json", "--image", image.path, "--series", f"vm/{image.name}") for image in images] + [self.maintain()]


class LarderFleet(LarderImages):
    name = "larder-fleet"

    def day(self, images):
        inventory = self.work / "images.toml"
        inventory.write_text("".join(f'[[image]]\nsource = "{image.path}"\n' for image in images))
        return [self.run("fleet", "run", inventory, "--json")]


TOOLS = {tool.name: tool for tool in (LarderFleet, LarderImages, Restic, Rustic, Borg, BorgZstd, Bupstash)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", type=pathlib.Path, help="a folder that make.py made")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--mib", type=int, default=1024, help="size of an image")
    parser.add_argument("--work", type=pathlib.Path, help="existing folder for images and repositories")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = pathlib.Path(folder)
        fleet = Fleet(args.fleet.resolve(), work, args.images, args.mib)
        tools = [make(TOOLS[name], work) for name in args.tools.split(",") if TOOLS[name].program()]
        sizes = dict.fromkeys(tools, 0)
        for day in (0, 1):
            if day > 0:
                fleet.advance(day)
            content = fleet.content()
            for tool in tools:
                ran = [measuring.run(command, tool.env(), tool.work) for command in commands(tool, fleet, day)]
                size = sum(path.stat().st_size for path in tool.store.path.rglob("*") if path.is_file())
                row = {"tool": tool.name, "version": tool.version(), "options": tool.options, "day": day, "content": content}
                row |= together(ran) if len(ran) > 1 else cost(ran[0])
                print(json.dumps(row | {"repository": size, "added": size - sizes[tool]}), flush=True)
                sizes[tool] = size


def make(kind, work):
    (work / f"{kind.name}-work").mkdir()
    tool = kind(work / f"{kind.name}-work", Store("local", work / f"{kind.name}-repository"))
    for command in tool.init():
        measuring.run(command, tool.env(), tool.work)
    return tool


def commands(tool, fleet, day):
    if isinstance(tool, LarderImages):
        return tool.day(fleet.images)
    return [tool.backup_full(image.path.parent, f"{image.name}-{day}") for image in fleet.images]


if __name__ == "__main__":
    main()
