#!/usr/bin/env python3
"""The published figures 3 to 6 and table 1 of multi-stage deduplication, computed, with those of Larder beside.

    bench/fleet/model.py [--pictures FOLDER]

The published scheme is computed from its cost model, with a seek for each buffer that goes to a disk (`Paper`). Its texts give the
numbers of table 1, but of the figures only the captions. So table 1 shows how near the computation is. Larder's hours are those of
`larder fleet plan --json`, with the seeks that the planner leaves out (`Larder`). The program is that of BENCH_LARDER.
"""

import argparse
import functools
import json
import math
import os
import pathlib
import subprocess
import tempfile
from dataclasses import dataclass

import draw

MB, KB = 1e6, 1e3
IMAGE = 40e9
# Level 1 and 2 of the published measurement, chunks, snapshots of an image, a run of changed segments.
CLEAN, KNOWN, CHUNK, SNAPSHOTS, RUN = 0.78, 0.745, 4096, 10, 2.92 * (2 << 20)
DISK, SEEK, EXCHANGE = 50 * MB, 0.010, 8 * MB
# Bytes of a request. That of an answer is not published; with the same, 20 minutes of 8 MB/s come out as 16.
REQUEST = ANSWER = 40
# Seconds of a message. Not published.
MESSAGE = 0.001
PUBLISHED = {  # q: MB of a partition, hours, hours with option 1
    100: (83.6, None, None), 250: (33.5, 3.12, 7.8), 500: (16.8, 3.15, 11.7), 750: (11.2, 3.22, 14.8), 1000: (8.45, 3.29, 26),
}


@dataclass(frozen=True)
class Paper:
    """Hours of the stages of the published scheme on one machine of many alike. Memory is in bytes."""

    machines: int = 100
    images: int = 25
    q: int = 250
    memory: float = 35 * MB
    option: int = 2
    # Of a part each, if they are not shares of `memory`.
    read: float | None = None
    network: float | None = None
    write: float | None = None

    @property
    def requests(self):
        return self.images * IMAGE * (1 - CLEAN) / CHUNK

    def partition(self):
        """Bytes of a partition: its part of the index, and requests."""
        index = self.images * SNAPSHOTS * IMAGE * (1 - CLEAN) * (1 - KNOWN) / CHUNK * REQUEST
        return (index + self.requests * REQUEST) / self.q

    def scan(self):
        size = self.requests * CHUNK
        return size / DISK + size / min(RUN, self.read or RUN) * SEEK

    def sent(self, record):
        """Exchange of a record for each request: time of its bytes in and out, and of its messages."""
        size = self.requests * record
        return 2 * size / EXCHANGE + MESSAGE * size / (self.network or self.memory)

    def stages(self):
        size = self.requests * REQUEST
        buffers = self.machines * self.q if self.option == 1 else 2 * self.machines + self.q
        buffer = self.write / self.q if self.write else self.memory / buffers
        first = self.scan() + self.sent(REQUEST) + size / DISK + size / buffer * SEEK
        answers = self.requests * KNOWN * ANSWER
        summary = (self.write or self.memory) / (self.machines + self.images)
        second = self.partition() * self.q / DISK + 2 * self.q * SEEK + self.sent(KNOWN * ANSWER)
        second += answers / DISK + answers / summary * SEEK
        third = self.scan() + answers / DISK
        return [seconds / 3600 for seconds in (first, second, third)]

    def hours(self):
        return sum(self.stages())


@dataclass(frozen=True)
class Larder:
    """Hours of Larder on the same machines: those of the planner, and seeks."""

    machines: int = 100
    images: int = 25
    q: int = 4
    memory: float = 35 * MB
    read: float = 2 << 20
    object: float | None = None

    def hours(self):
        plan = planned(self.machines, self.images)["rounds"][0]
        changed = self.images * IMAGE * (1 - CLEAN)
        # A run of changed segments is found again for its new chunks. Blocks of other processes lie between two reads.
        seeks = 2 * changed / min(RUN, self.read)
        # Questions are sorted in the memory of a stage, and merged in pieces of a sixteenth of it (`Budget::of`).
        sort = self.memory / 2
        questions = changed / CHUNK * 28
        piece = min(max(sort / 16, 64 << 10), 4 << 20)
        seeks += questions / piece + questions / sort
        # The planner has four partitions for each host, and objects of 4 MiB.
        requests = 2 * (self.q - 4) * self.machines
        output = self.object or min(max(self.memory / 2, 512 << 10), 4 << 20)
        requests += questions * (1 + KNOWN * 17 / 28) * (1 / output - 1 / (4 << 20))
        return (plan["seconds"] + seeks * SEEK + requests * 0.03 / 16) / 3600


@functools.cache
def planned(machines, images, *more):
    """The plan for this number of images of 40 GB on each host, of which 22 % change, with a map of changes."""
    larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"LARDER_REPOSITORY": folder + "/repository", "LARDER_PASSWORD": "bench", "LARDER_CACHE_DIR": folder + "/cache"}
        subprocess.run([larder, "-q", "init", "--insecure-kdf"], env=env, check=True, stdout=subprocess.DEVNULL)
        rows = (f'[[image]]\nsource = "/none/{n}.raw"\nhost = "h{n % machines}"\nmap = "/none/map"\n' for n in range(machines * images))
        pathlib.Path(folder, "images.toml").write_text("".join(rows))
        facts = [f"size={IMAGE:.0f}", f"changed={(1 - CLEAN) * 100:g}", f"known={KNOWN * 100:g}", "shared=0", *(m for m in more if "=" in m)]
        words = [word for fact in facts for word in ("--what-if", fact)] + [m for m in more if "=" not in m]
        ran = subprocess.run([larder, "fleet", "plan", folder + "/images.toml", "--json", *words], env=env, check=True, stdout=subprocess.PIPE)
        return json.loads(ran.stdout)


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---:|" * len(head))
    for row in rows:
        print("| " + " | ".join("" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    pictures = {}

    print("## Table 1: 100 machines of 25 images of 40 GB, 35 MB each\n")
    rows = []
    for q, (megabytes, hours, first) in PUBLISHED.items():
        paper, fits = Paper(q=q), Paper(q=q).partition() <= 35 * MB
        rows.append([q, megabytes, paper.partition() / MB, hours, paper.hours() if fits else None, first,
                     Paper(q=q, option=1).hours() if fits else None, Larder(q=q).hours()])
    table(["q", "MB", "computed", "hours", "computed", "hours, option 1", "computed", "Larder, hours"], rows)
    shown = [row for row in rows if row[3]]
    pictures["q"] = draw.lines("Hours by partitions of a machine (table 1)", "partitions of a machine", "hours", [
        ("option 1, published", [(row[0], row[5]) for row in shown]), ("option 1, computed", [(row[0], row[6]) for row in shown]),
        ("option 2, published", [(row[0], row[3]) for row in shown]), ("option 2, computed", [(row[0], row[4]) for row in shown]),
        ("Larder, planned", [(row[0], row[7]) for row in shown])])

    print("## Figure 3: hours by memory, with as few partitions as fit\n")
    rows = []
    for memory in (15, 25, 35, 50, 70, 100, 130, 160, 190):
        q = math.ceil(Paper(q=1).partition() / (memory * MB))
        paper = Paper(q=q, memory=memory * MB)
        rows.append([memory, q, *paper.stages(), paper.hours(), Paper(q=q, memory=memory * MB, option=1).hours(), Larder(memory=memory * MB).hours()])
    table(["MB", "q", "stage 1", "stage 2", "stage 3", "all", "option 1", "Larder"], rows)
    pictures["memory"] = draw.lines("Hours by memory of a machine (figure 3)", "MB", "hours", [
        (name, [(row[0], row[at]) for row in rows])
        for name, at in (("option 1", 6), ("option 2", 5), ("its stage 1", 2), ("its stage 2", 3), ("its stage 3", 4), ("Larder, planned", 7))])

    # Settings of the captions: 10 machines with 5 images, 2.5 MB for messages, 6.25 MB for writing, 128 KB for reading.
    small = {"machines": 10, "images": 5, "network": 2.5 * MB, "write": 6.25 * MB, "read": 128 * KB}
    ours = {"machines": 10, "images": 5}
    figures = [
        ("Figure 4", "network", "memory for messages", "KB", KB, (10, 50, 100, 500, 1000, 2500, 5000, 10000),
         lambda size: Larder(**ours, object=max(size, 512 << 10))),
        ("Figure 5", "read", "memory for reading", "KB", KB, (16, 32, 64, 128, 256, 512, 1024, 4096), lambda size: Larder(**ours, read=size)),
        ("Figure 6", "write", "memory for writing", "MB", MB, (0.5, 1, 2, 4, 6.25, 12.5, 25, 50), lambda size: Larder(**ours, memory=2 * size)),
    ]
    for title, key, what, unit, factor, sizes, of_larder in figures:
        print(f"## {title}: hours by {what}, 10 machines of 5 images\n")
        rows = [[size, Paper(**{**small, key: size * factor}).hours(), of_larder(size * factor).hours()] for size in sizes]
        table([unit, "published scheme", "Larder"], rows)
        pictures[key] = draw.lines(f"Hours by {what} ({title.lower()})", unit, "hours", [
            ("published scheme", [(row[0], row[1]) for row in rows]), ("Larder, planned", [(row[0], row[2]) for row in rows])])

    print("## Rounds: what guests overwrite while their images are frozen, at 200 kB a second each\n")
    plans = [(rounds, planned(100, 25, "--rounds", str(rounds), "writes=200000")) for rounds in (1, 2, 4, 8, 16)]
    table(["rounds", "hours", "overwritten, GB"], [[rounds, plan["seconds"] / 3600, plan["overwritten_bytes"] / 1e9] for rounds, plan in plans])
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            (args.pictures / f"model-{name}.svg").write_text(picture)


if __name__ == "__main__":
    main()
