#!/usr/bin/env python3
"""Guesses from lengths of objects which file a nightly backup found changed.

    bench/padding/attack.py                         1,000 nights of each scenario
    bench/padding/attack.py --nights 200 --scenario one

A folder has 16 files, each of one kind: a length and a sort of content. Each night one of them gets new content of its kind,
and the folder is backed up. An observer lists the store after each night. He sees names and lengths in `data/`, `meta/` and
`versions/`. He is told the kinds of the first half of the nights, and guesses those of the second half. The same attack on the
lengths without padding shows that it can succeed. BENCH_LARDER names the program; tools/requirements.txt names the modules.
"""

import argparse
import base64
import math
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lengths import Larder

KINDS, SEED = 16, 20261123
FOLDERS = ("data", "meta", "versions")
# Unchanged files with which the metadata of a night is about 8 KiB long.
EDGE = 58


@dataclass(frozen=True)
class Scenario:
    """Lengths of the kinds, of which each night's differs by at most 2 %, and the files around them."""

    text: str
    lengths: list
    unchanged: int = 40
    folders: int = 1


# A chunk has at most 6,144 bytes.
ONE = [300 + 380 * kind for kind in range(KINDS)]
SCENARIOS = {
    "one": Scenario("one chunk (300 to 6,000 bytes)", ONE),
    "edge": Scenario("one chunk, metadata near a step", ONE, unchanged=EDGE),
    "tree": Scenario("one chunk, in one of 16 folders of 100 files", ONE, unchanged=1600, folders=16),
    "near": Scenario("several chunks, lengths alike (20,000 to 26,000 bytes)", [20_000 + 400 * kind for kind in range(KINDS)]),
    "far": Scenario("several chunks, lengths apart (8 KiB to 1 MiB)", [int(8192 * 2 ** (7 * kind / 15)) for kind in range(KINDS)]),
}
# Which lengths an observer may go by. He chooses on the nights that he knows.
VIEWS = (("data",), ("meta",), ("versions",), ("data", "meta"), FOLDERS)
NEIGHBOURS = (1, 5, 15)


def words(rng, length):
    """Text of few words, which compresses well."""
    return b" ".join(rng.choice(WORDS) for _ in range(length // 4))[:length]


def rows(rng, length):
    """A table of numbers."""
    return b"\n".join(b"%d,%d,%d" % (at, rng.randrange(100), rng.randrange(10_000)) for at in range(length // 5))[:length]


WORDS = [base64.b32encode(random.Random(f"{SEED} {word}").randbytes(1 + word % 6)).rstrip(b"=").lower() for word in range(400)]
SORTS = (lambda rng, length: rng.randbytes(length), words, rows, lambda rng, length: base64.b64encode(rng.randbytes(length))[:length])


def content(rng, kind, length):
    return SORTS[kind % len(SORTS)](rng, int(length * rng.uniform(0.98, 1.02)))


def backups(larder, scenario, nights, rng, source):
    """The kind of each night, and the names of the objects that its backup added."""
    folders = [source / f"folder-{number:02}" for number in range(scenario.folders)]
    for folder in folders:
        folder.mkdir(parents=True)
    files = [folders[kind % scenario.folders] / f"file-{kind:02}" for kind in range(KINDS)]
    for kind, file in enumerate(files):
        file.write_bytes(content(rng, kind, scenario.lengths[kind]))
    for number in range(scenario.unchanged):
        (folders[number % scenario.folders] / f"unchanged-{number:04}").write_bytes(rng.randbytes(rng.randrange(200, 20_000)))
    larder.run("backup", source)
    seen, kinds, added = job_folders(larder.root), [], []
    for _ in range(nights):
        kind = rng.randrange(KINDS)
        files[kind].write_bytes(content(rng, kind, scenario.lengths[kind]))
        larder.run("backup", source)
        new = job_folders(larder.root) - seen
        seen |= new
        kinds.append(kind)
        added.append([str(path.relative_to(larder.root)) for folder in new for path in folder.iterdir()])
    return kinds, added


def job_folders(root):
    """The folders that an attack looks at. Each job has its own."""
    return {*root.glob("data/*"), *root.glob("meta/*"), *root.glob("versions/*/*")}


def seen_lengths(names, lengths, view):
    """Per folder of the view: how many objects, their sum, the longest."""
    found = []
    for folder in view:
        some = [lengths[name] for name in names if name.startswith(folder + "/")]
        found += [len(some), sum(some), max(some, default=0)]
    return tuple(found)


def guess(known, sight, count):
    """The most frequent kind among the nearest known nights; all that are as near as the last of them count."""
    near = sorted((sum(abs(a - b) for a, b in zip(other, sight)), kind) for other, kind in known)
    limit = near[min(count, len(near)) - 1][0]
    return Counter(kind for distance, kind in near if distance <= limit).most_common(1)[0][0]


def hits(known, asked, count):
    memory = {}
    for sight in {sight for sight, _ in asked}:
        memory[sight] = guess(known, sight, count)
    return sum(memory[sight] == kind for sight, kind in asked)


def attack(kinds, added, lengths):
    """Right guesses of the second half, how many were made, and the view and neighbours that the first half recommends."""
    half, quarter = len(kinds) // 2, len(kinds) // 4
    best = None
    for view in VIEWS:
        nights = [(seen_lengths(names, lengths, view), kind) for names, kind in zip(added, kinds)]
        for count in NEIGHBOURS:
            score = hits(nights[:quarter], nights[quarter:half], count)
            if best is None or score > best[0]:
                best = score, view, count, nights
    _, view, count, nights = best
    return hits(nights[:half], nights[half:], count), len(nights) - half, view, count, len({sight for sight, _ in nights})


def interval(right, asked):
    """Wilson's interval of 95 %."""
    share, z = right / asked, 1.96
    middle, width = share + z * z / (2 * asked), z * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked))
    return (middle - width) / (1 + z * z / asked), (middle + width) / (1 + z * z / asked)


def report(name, kinds, added, objects):
    plain = {found.name: found.plain for found in objects}
    real = {found.name: found.length for found in objects}
    for folder in FOLDERS:
        some = Counter(found.length for found in objects if found.folder == folder)
        print(f"{name}: lengths in {folder}/: " + ", ".join(f"{length} ({count})" for length, count in sorted(some.items())[:12]))
    chunks = {found.name: found.chunks for found in objects if found.folder == "data"}
    one = sum(sum(chunks.get(new, 0) for new in names) == 1 for names in added)
    print(f"{name}: {one} of {len(added)} nights added exactly one chunk of data")
    print("\n| scenario | lengths | right | of | accuracy | 95 % | chance | goes by | different sights |\n|---|---|---:|---:|---:|---|---:|---|---:|")
    for what, lengths in (("padded", real), ("without padding", plain)):
        right, asked, view, count, sights = attack(kinds, added, lengths)
        low, high = interval(right, asked)
        by = f"{'+'.join(view)}, {count} nearest"
        print(f"| {SCENARIOS[name].text} | {what} | {right} | {asked} | {right / asked:.1%} | {low:.1%}-{high:.1%} | {1 / KINDS:.1%} | {by} | {sights} |")
    totals = defaultdict(lambda: [0, 0])
    for found in objects:
        totals[found.folder][0] += found.length
        totals[found.folder][1] += found.plain
    each = ", ".join(f"{folder}/ {stored / len(kinds):.0f} ({stored / plain:.2f} times)" for folder, (stored, plain) in sorted(totals.items()))
    print(f"\n{name}: bytes a night, and the multiple of those without padding: {each}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="may be given several times; default: all")
    parser.add_argument("--nights", type=int, default=1000)
    parser.add_argument("--work", type=Path, help="folder for repositories; default: that for temporary files")
    args = parser.parse_args()
    for name in args.scenario or SCENARIOS:
        work = Path(tempfile.mkdtemp(dir=args.work))
        try:
            larder = Larder(work)
            rng = random.Random(f"{SEED} {name}")
            kinds, added = backups(larder, SCENARIOS[name], args.nights, rng, work / "source")
            report(name, kinds, added, list(larder.objects()))
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
