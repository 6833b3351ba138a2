#!/usr/bin/env python3
"""What backups of a disk image with a map of its changes take: a large qcow2 image at rest, of which little has changed.

    bench/images.py                           40 GiB, 4 GiB of them data, 50 MiB of scattered changes, five turns
    bench/images.py --runs 9 --changes 1600
    bench/images.py --pieces 2 --runs 2       128 MiB of data

The image is sparse. Changes are 64 KiB each, anywhere in the data. Each turn changes the image and backs it up; a qcow2 bitmap notes
the changes, and the backup compares 1 % of what it calls unchanged. Wall time and CPU are those of the process, medians of the turns.
The programs are those of BENCH_LARDER (default: target/release/larder) and, if set, BENCH_LARDER_OTHER, in turns and each with an
image of its own. Needs qemu-img and qemu-io, and 10 GB in the folder for temporary files.
"""

import argparse
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--changes", type=int, default=800, help="changes of 64 KiB before each backup")
    parser.add_argument("--pieces", type=int, default=63, help="64 MiB of data each; up to 63")
    args = parser.parse_args()
    programs = [os.environ.get("BENCH_LARDER", "target/release/larder")]
    programs += [other for other in [os.environ.get("BENCH_LARDER_OTHER")] if other]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        image = work / "image.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "40G"], check=True)
        (work / "data").write_bytes(os.urandom(64 << 20))
        write(image, [f"write -q -s {work / 'data'} {piece * 640}M 64M" for piece in range(args.pieces)])
        runs = [Run(program, work / str(number), image) for number, program in enumerate(programs)]
        rng = random.Random(1)
        for _ in range(args.runs):
            for run in runs:
                run.change(rng, args.changes, args.pieces)
                run.measure()
        print("| program | seconds | CPU seconds |\n|---|---:|---:|")
        for run in runs:
            wall, cpu = (statistics.median(values) for values in zip(*run.times))
            print(f"| {run.program} | {wall:.2f} | {cpu:.2f} |")


def write(image, commands):
    text = "\n".join([*commands, "q", ""])
    subprocess.run(["qemu-io", "-f", "qcow2", image], input=text, text=True, check=True, stdout=subprocess.DEVNULL)


class Run:
    """A program with a repository and an image of its own."""

    def __init__(self, program, folder, image):
        folder.mkdir()
        self.program, self.image, self.times = program, folder / "image.qcow2", []
        shutil.copy(image, self.image)
        self.env = dict(
            os.environ, HOME=str(folder), LARDER_STATE=str(folder / "state"), LARDER_REPOSITORY=str(folder / "repository"), LARDER_PASSWORD="x"
        )
        self.larder("init", "--insecure-kdf")
        self.backup()

    def larder(self, *line):
        subprocess.run([self.program, "-q", *line], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def backup(self):
        self.larder("backup", "--image", f"qcow2:{self.image}", "--series", "vm")

    def change(self, rng, count, pieces):
        places = (rng.randrange(pieces) * 640 + rng.randrange(64) for _ in range(count))
        write(self.image, [f"write -q -P {rng.randrange(1, 255)} {place}M 64k" for place in places])

    def measure(self):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        self.backup()
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        self.times.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))


if __name__ == "__main__":
    main()
