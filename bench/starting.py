#!/usr/bin/env python3
"""What starting costs: CPU of small commands with a password, and with a key file.

    bench/starting.py                         medians of 25 runs each
    bench/starting.py --mib 90                size of the tar that is backed up

A password costs argon2id, a key file does not. CPU is user and system time of the process. The tar is the first version of its
series each time, and has random bytes and text in halves. The program is that of BENCH_LARDER (default: target/release/larder).
"""

import argparse
import io
import os
import pathlib
import random
import resource
import statistics
import subprocess
import tarfile
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--mib", type=int, default=90, help="size of the tar")
    args = parser.parse_args()
    larder = os.environ.get("BENCH_LARDER", "target/release/larder")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        env = dict(os.environ, HOME=folder, LARDER_REPOSITORY=str(work / "repository"))
        password = dict(env, LARDER_PASSWORD="x")
        key_file = dict(env, LARDER_KEY_FILE=str(work / "key"))
        tar = tar_of(random.Random(1), args.mib << 20)
        run = lambda env, *line, data=b"": cpu_of([larder, *line], env, data)
        run(password, "init")
        run(password, "key", "add", "--file", str(work / "key"))
        run(password, "backup", "--stdin", "--series", "small", data=b"content")
        print("| command | password, ms of CPU | key file, ms of CPU |\n|---|---:|---:|")
        ways = [password, key_file]
        snapshots = [median(args.runs, lambda _: run(way, "snapshots")) for way in ways]
        print(f"| `snapshots` | {snapshots[0]:.0f} | {snapshots[1]:.0f} |")
        names = ["password", "key"]
        new = lambda way, name: lambda number: run(
            way, "backup", "--stdin", "--no-similar", "--series", f"{name}{number}", data=tar
        )
        first = [median(max(args.runs // 5, 1), new(way, name)) for way, name in zip(ways, names)]
        print(f"| first `backup` of a tar of {args.mib} MiB | {first[0]:.0f} | {first[1]:.0f} |")


def tar_of(rng, size):
    """A tar of files of some 100 KiB."""
    out = io.BytesIO()
    words = [rng.randbytes(rng.randint(2, 9)).hex() for _ in range(4096)]
    with tarfile.open(fileobj=out, mode="w") as tar:
        number = 0
        while out.tell() < size:
            content = rng.randbytes(100_000) if number % 2 else " ".join(rng.choices(words, k=12_000)).encode()
            info = tarfile.TarInfo(f"folder/{number}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
            number += 1
    return out.getvalue()


def cpu_of(line, env, data):
    """Milliseconds of CPU of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(line, env=env, input=data, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(runs, measure):
    return statistics.median(measure(number) for number in range(runs))


if __name__ == "__main__":
    main()
