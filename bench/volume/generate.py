#!/usr/bin/env python3
"""Makes two generations of a disk image, and says how much of them is redundant.

The first generation has runs of new data and copies of earlier runs (internal redundancy). The
second one is the first with runs replaced, inserted and removed (temporal redundancy), as a volume
that took last week's backup takes this week's. dedupv1 (section V) has 32.5 % and 97.6 %.

    generate.py FOLDER [--size MIB] [--internal SHARE] [--temporal SHARE] [--seed N]

FOLDER gets first.img, second.img and truth.json. Copies begin at any byte, so only cuts that follow
the content find them. `unique` in truth.json is the least number of bytes that a store has to keep.
"""

import argparse
import json
import random
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
# Lengths of runs: from a small file to a large one.
RUN_MIN, RUN_MAX = 16 * KIB, 2 * MIB
# Of new data, this share of each piece is text that compresses well.
PIECE, TEXT_SHARE = 4 * KIB, 0.5


class Source:
    """New data that is never the same twice."""

    def __init__(self, rng):
        self.rng = rng
        words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(500)]
        self.text = b" ".join(rng.choices(words, k=60_000))

    def run(self, length):
        out = bytearray()
        text = int(PIECE * TEXT_SHARE)
        while len(out) < length:
            start = self.rng.randrange(len(self.text) - text)
            out += self.rng.randbytes(PIECE - text) + self.text[start : start + text]
        return bytes(out[:length])


def run_length(rng):
    """Lengths with the same share of bytes for each order of magnitude."""
    return int(RUN_MIN * (RUN_MAX / RUN_MIN) ** rng.random())


def first_generation(rng, source, size, internal):
    image, unique = bytearray(), 0
    while len(image) < size:
        length = min(run_length(rng), size - len(image))
        if len(image) > 8 * MIB and rng.random() < internal:
            start = rng.randrange(len(image) - length)
            image += image[start : start + length]
        else:
            image += source.run(length)
            unique += length
    return bytes(image), unique


def second_generation(rng, source, first, temporal):
    """Edits in small runs: half replace, a quarter insert, a quarter remove. The length stays."""
    image, at, unique = bytearray(), 0, 0
    while at < len(first):
        keep = min(run_length(rng), len(first) - at)
        image += first[at : at + keep]
        at += keep
        new = int(keep * (1 - temporal) / temporal)
        kind = rng.random()
        if kind < 0.75:
            image += source.run(new)
            unique += new
        if not 0.5 <= kind < 0.75:
            at += new
    short = len(first) - len(image)
    if short > 0:
        image += source.run(short)
        unique += short
    return bytes(image[: len(first)]), unique


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=1024, help="MiB of a generation (default: 1024)")
    parser.add_argument("--internal", type=float, default=0.325)
    parser.add_argument("--temporal", type=float, default=0.976)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    source = Source(rng)
    args.folder.mkdir(parents=True, exist_ok=True)
    first, unique_first = first_generation(rng, source, args.size * MIB, args.internal)
    second, unique_second = second_generation(rng, source, first, args.temporal)
    (args.folder / "first.img").write_bytes(first)
    (args.folder / "second.img").write_bytes(second)
    truth = {"size": len(first), "unique_first": unique_first, "unique_second": unique_second,
             "internal": args.internal, "temporal": args.temporal, "seed": args.seed}
    (args.folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(f"first: {100 - 100 * unique_first / len(first):.1f} % redundant; second: {100 - 100 * unique_second / len(first):.1f} %")


if __name__ == "__main__":
    main()
