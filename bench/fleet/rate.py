#!/usr/bin/env python3
"""The rate of one worker that keeps to 35 MB, with a disk of 50 MB a second and with a fast one.

    bench/fleet/rate.py                              4 GiB of image: 9 GB of disk, 3 minutes
    bench/fleet/rate.py --mib 256
    bench/fleet/rate.py --times 5 --beside OTHER     the same work by two programs in turns, five times

An image is backed up as a whole. Then 22 % of it changes, in runs of three segments of 2 MiB, of which 74.5 % is data that the
repository has: the shares of the multi-stage paper. `fleet work` backs up the changed image with a map of changes, while the
process that plans the batch has no image of its own. The worker keeps to the rate by `--limit-read`; with `--nbd`, qemu-nbd serves
the image at that rate instead. Both processes have a key file, as workers have. Each batch begins with the same repository, caches
and image. Prints a line of JSON for each batch, and one with medians for each rate and program.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from run import message, stages

SEGMENT, PIECE = 2 << 20, 512 << 10
CHANGED, KNOWN = 0.22, 0.745


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096, help="size of the image")
    parser.add_argument("--work", type=pathlib.Path, help="existing folder for the image and the repository")
    parser.add_argument("--rates", default="50,0", help="MB a second of the disk; 0: no limit")
    parser.add_argument("--memory", default="35M", help="what the worker may take; 0: its default")
    parser.add_argument("--nbd", action="store_true", help="qemu-nbd limits the rate")
    parser.add_argument("--times", type=int, default=1, help="batches with each rate and program")
    parser.add_argument("--beside", type=pathlib.Path, help="another program, which does the same in turns")
    args = parser.parse_args()
    larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
    programs = [larder] + ([args.beside.absolute()] if args.beside else [])
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = pathlib.Path(folder)
        image = work / "image.raw"
        base(image, args.mib)
        tool = Larder(larder, work, "repository")
        tool("backup", "--image", image, "--series", "vm/image")
        tool("optimize")
        changed, new = change(image, work / "map", args.mib)
        kept = Kept(work)
        for rate in map(int, args.rates.split(",")):
            options = [] if args.memory == "0" else ["--total-memory", args.memory]
            options += [] if args.nbd or rate == 0 else ["--limit-read", f"{rate}MB"]
            rows = {program: [] for program in programs}
            for time_of in range(args.times):
                for program in programs if time_of % 2 == 0 else reversed(programs):
                    kept.again()
                    tool.program = program
                    with served(image, work / "socket", rate if args.nbd else 0) as source:
                        row = tool.batch(source, work / "map", options)
                    rows[program].append(row)
                    print(json.dumps({"program": program.name, "rate": rate, "nbd": args.nbd, "logical": args.mib << 20,
                                      "changed": changed, "unknown": new, **row}), flush=True)
                    if time_of == 0:
                        tool.same(image)
            for program, of_it in rows.items():
                names = ("wall", "cpu", "user", "system", "rss")
                medians = {name: statistics.median(row[name] for row in of_it) for name in names}
                medians["core_percent"] = round(statistics.median(100 * row["cpu"] / row["wall"] for row in of_it), 1)
                medians["ps_of_cpu_a_byte"] = round(medians["cpu"] * 1e12 / (args.mib << 20))
                print(json.dumps({"program": str(program), "rate": rate, "times": args.times, "medians": medians}), flush=True)


class Kept:
    """The repository and the caches as they are now. Objects are never changed, so links to them suffice."""

    def __init__(self, work):
        self.work = work
        self.names = [path.name for path in work.iterdir() if path.name.startswith("repository") and path.is_dir()]
        for name in self.names:
            (work / name).rename(work / f"kept-{name}")

    def again(self):
        for path in self.work.glob("repository*"):
            if path.is_dir():
                shutil.rmtree(path)
        for name in self.names:
            copy = os.link if name == "repository" else shutil.copy2
            shutil.copytree(self.work / f"kept-{name}", self.work / name, copy_function=copy)


class Larder:
    """A repository, and a machine with a key for it. Machines have caches of their own."""

    def __init__(self, program, work, name, machine=""):
        self.program, self.work, self.name = program, work, name
        self.env = os.environ | {
            "LARDER_REPOSITORY": str(work / name), "LARDER_KEY_FILE": str(work / f"{name}.key"),
            "LARDER_CACHE_DIR": str(work / f"{name}{machine}-cache"), "LARDER_STATE": str(work / f"{name}{machine}-state"),
        }
        if machine:
            return
        env = {key: value for key, value in self.env.items() if key != "LARDER_KEY_FILE"} | {"LARDER_PASSWORD": "bench"}
        for words in (["init"], ["key", "add", "--role", "backup+restore+operate", "--file", self.env["LARDER_KEY_FILE"]]):
            subprocess.run([program, "-q", *words], env=env, check=True, stdout=subprocess.DEVNULL)

    def __call__(self, *words):
        return subprocess.run([self.program, *map(str, words)], env=self.env, check=True, text=True, stdout=subprocess.PIPE).stdout

    def same(self, image):
        path = next(row["path"] for row in map(json.loads, self("ls", "latest", "--series", "vm/image", "--json").splitlines()) if row.get("type") == "file")
        with self.start("dump", "latest", "--series", "vm/image", path) as dump:
            subprocess.run(["cmp", "-", image], stdin=dump.stdout, check=True)

    def start(self, *words):
        return subprocess.Popen([self.program, *map(str, words)], env=self.env, text=True, stdout=subprocess.PIPE)

    def batch(self, source, changes, options):
        inventory = self.work / "images.toml"
        inventory.write_text(f'[[image]]\nname = "image"\nsource = "{source}"\nhost = "worker"\nmap = "{changes}"\nsince = "latest"\n')
        worker = self.start("fleet", "work", inventory, "--host", "worker", "--once", "--json", *options)
        begin = time.monotonic()
        planner = self.start("fleet", "run", inventory, "--queue", "store", "--no-pass", "--json")
        output, planned = ended(planner)
        wall = time.monotonic() - begin
        worked, used = ended(worker)
        summary = message(output, "fleet_summary")
        mine = message(worked, "fleet_work")
        status = message(self("fleet", "status", summary["batch"], "--json"), "fleet_status")
        return {
            "wall": round(wall, 2), "cpu": round(seconds(used), 2), "user": round(used.ru_utime, 2),
            "system": round(used.ru_stime, 2), "planner_cpu": round(seconds(planned), 2),
            "read": summary["read_bytes"], "read_again": summary["reread_bytes"], "new": summary["data_added"],
            "rss": mine["memory_bytes"],
            "stages": stages(status),
        }


def ended(process):
    """Waits for a process. Returns what it printed, and what it used."""
    with process.stdout:
        output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{process.args}: exit {process.returncode}")
    return output, used


def seconds(used):
    """Of the processor."""
    return used.ru_utime + used.ru_stime


def base(image, mib):
    """Pages of which half is random."""
    chance, rest = random.Random(1), bytes(range(256)) * 8
    with open(image, "wb") as file:
        for _ in range(mib):
            block = chance.randbytes(1 << 19)
            file.write(b"".join(block[at:at + 2048] + rest for at in range(0, len(block), 2048)))


def change(image, changes, mib):
    """Changes segments of the image, and writes the map. Returns the bytes that changed, and those that are nowhere else."""
    chance, size, rest = random.Random(2), mib << 20, bytes(range(256)) * 8
    runs = sorted(chance.sample(range(size // (3 * SEGMENT)), round(size * CHANGED / (3 * SEGMENT))))
    new, old = 0, os.open(image, os.O_RDWR)
    # Taken from outside of the runs, so that it stays.
    kept = sorted(set(range(size // (3 * SEGMENT))) - set(runs))
    for number in runs:
        for at in range(number * 3 * SEGMENT, (number + 1) * 3 * SEGMENT, PIECE):
            if chance.random() < KNOWN:
                piece = os.pread(old, PIECE, chance.choice(kept) * 3 * SEGMENT + chance.randrange(3 * SEGMENT // PIECE) * PIECE)
            else:
                block = chance.randbytes(PIECE // 2)
                piece, new = b"".join(block[i:i + 2048] + rest for i in range(0, len(block), 2048)), new + PIECE
            os.pwrite(old, piece, at)
    os.close(old)
    changes.write_text("".join(f"{number * 3 * SEGMENT} {3 * SEGMENT}\n" for number in runs))
    return len(runs) * 3 * SEGMENT, new


@contextlib.contextmanager
def served(image, socket, rate):
    """The source of the image: itself, or a server that reads no faster."""
    if rate == 0:
        yield image
        return
    limit = ["--object", f"throttle-group,id=limit,x-bps-read={rate * 1_000_000}", "--image-opts",
             f"driver=throttle,throttle-group=limit,file.driver=raw,file.file.driver=file,file.file.filename={image}"]
    server = subprocess.Popen(["qemu-nbd", "-r", "-t", "-e", "8", "-k", socket, *limit])
    try:
        while not socket.exists():
            time.sleep(0.05)
        yield f"nbd+unix:///?socket={socket}"
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
