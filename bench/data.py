#!/usr/bin/env python3
"""Makes the data sets of the benchmark under `bench/data/`.

    python3 bench/data.py --scale small            every set, small: a few minutes, under 2 GB
    python3 bench/data.py --scale full --set db    one set, at the size the published figures use
"""

import argparse
import hashlib
import time

from sets import base, database, image, releases

BLOCKS = [4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20]
MAKERS = {"db": database.make, "tars": releases.make, "tree8600": releases.make_tree, "image": image.make}


def print_unique(name, versions):
    """What fixed blocks would find: for data whose pages stay in place a bound on what chunks of that size can find."""
    total = sum(version.bytes for version in versions)
    for block in BLOCKS:
        seen, unique = set(), 0
        for path in sorted(path for version in versions for path in version.path.iterdir()):
            with open(path, "rb") as file:
                while piece := file.read(block):
                    digest = hashlib.blake2b(piece, digest_size=16).digest()
                    if digest not in seen:
                        seen.add(digest)
                        unique += len(piece)
        print(f"{name}: blocks of {block >> 10} KiB: {unique / 1e6:.0f} of {total / 1e6:.0f} MB unique ({unique / total:.0%})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--set", action="append", choices=list(MAKERS), help="may be given several times; default: all")
    parser.add_argument("--versions", type=int, help="make so many versions instead of the scale's own number")
    parser.add_argument("--unique", action="store_true", help="also print how much is unique in blocks of several sizes")
    args = parser.parse_args()
    for name in args.set or MAKERS:
        start = time.monotonic()
        MAKERS[name](args.scale, args.versions)
        base.say(f"{name}: ready after {time.monotonic() - start:.0f} s")
        if args.unique:
            print_unique(name, base.load(name, args.scale))


if __name__ == "__main__":
    main()
