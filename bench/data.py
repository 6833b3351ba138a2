#!/usr/bin/env python3
"""Makes the data sets of the benchmark under `bench/data/`.

    python3 bench/data.py --scale small            every set, small: a few minutes, under 2 GB
    python3 bench/data.py --scale full --set db    one set, at the size the published figures use
"""

import argparse
import time

from sets import base, database, image, releases

MAKERS = {"db": database.make, "tars": releases.make, "tree8600": releases.make_tree, "image": image.make}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=["small", "full"], default="small")
    parser.add_argument("--set", action="append", choices=list(MAKERS), help="may be given several times; default: all")
    parser.add_argument("--versions", type=int, help="make so many versions instead of the scale's own number")
    args = parser.parse_args()
    for name in args.set or MAKERS:
        start = time.monotonic()
        MAKERS[name](args.scale, args.versions)
        base.say(f"{name}: ready after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
