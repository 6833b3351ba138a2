#!/usr/bin/env python3
"""Restores of the newest of ten versions, by several programs in turns.

    bench/restores.py before=PATH after=PATH                 medians of 5 rounds
    bench/restores.py --mib 400 --way local --way total ...  only these ways

The sets are a database (pages of 4 KiB, of which each version changes a tenth in runs) and a tree of files (each version changes
a fiftieth of them). The first program makes the repositories. Each restore has an empty target and no cache, and opens the
repository with a key file. Ways: `local`, a folder; `s3`, MinIO; `each` and `total`, MinIO behind a link: every answer comes
30 ms late, and at 90 MB/s at most on each connection, or on all together. CPU is user and system time of the program alone; the
link takes some of the same cores. `minio` is taken from PATH. The limit of a link is curl fetching all data containers of the
repository with six requests at a time.
"""

import argparse
import multiprocessing
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile
import time

from harness import link, s3

WAYS = ["local", "s3", "each", "total"]
BUCKET = "restores"
SECRETS = {"AWS_ACCESS_KEY_ID": s3.ACCESS, "AWS_SECRET_ACCESS_KEY": s3.SECRET, "AWS_REGION": s3.REGION}


def page(rng, words):
    return (rng.randbytes(2048) + " ".join(rng.choices(words, k=400)).encode())[:4096].ljust(4096)


def database(folder, mib, words):
    """Yields after each version."""
    rng, path, pages = random.Random(1), folder / "database", mib << 8
    header = b"SQLite format 3\0" + bytes([16, 0, 1, 1, 0, 64, 32, 32]) + bytes(76) + b"\x0d"
    with open(path, "wb") as file:
        file.write(header.ljust(4096))
        for _ in range(pages - 1):
            file.write(page(rng, words))
    while True:
        yield
        with open(path, "r+b") as file:
            changed = 0
            while changed < pages // 10:
                run = min(rng.randint(1, 16), pages // 10)
                file.seek(4096 * rng.randrange(1, pages - run))
                file.writelines(page(rng, words) for _ in range(run))
                changed += run


def tree(folder, mib, words):
    """Yields after each version."""
    rng, paths, size = random.Random(2), [], 0
    while size < mib << 20:
        path = folder / f"{len(paths) // 100:03}" / f"{len(paths):05}"
        path.parent.mkdir(exist_ok=True)
        length = min(int(rng.lognormvariate(9.5, 1.5)), 8 << 20)
        paths.append(path)
        size += length
        write_file(path, length, rng, words)
    while True:
        yield
        for path in rng.sample(paths, len(paths) // 50):
            write_file(path, path.stat().st_size, rng, words)


def write_file(path, length, rng, words):
    with open(path, "wb") as file:
        while length > 0:
            length -= file.write(page(rng, words)[:length])


SETS = {"database": database, "tree": tree}


def run(line, env, errors=None):
    """Runs a command. Wall and CPU seconds, and the peak of its memory in MB."""
    begun = time.monotonic()
    process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=errors)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - begun
    if status:
        raise SystemExit(f"{line}: {status}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--set", action="append", choices=list(SETS))
    parser.add_argument("--memory", help="passed on to the restores")
    parser.add_argument("--work", default="/dev/shm", help="folder for all data")
    args = parser.parse_args()
    programs = dict(program.split("=", 1) for program in args.programs)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        measure(args, programs, pathlib.Path(folder))


def measure(args, programs, work):
    words = [random.Random(3 + n).randbytes(5).hex()[: 3 + n % 7] for n in range(4096)]
    server = s3.Server(work / "minio")
    server.store(BUCKET)
    minio_port = int(server.endpoint.rsplit(":", 1)[1])
    ports = {"s3": minio_port, "each": link.free_port(), "total": link.free_port()}
    links = [
        multiprocessing.Process(target=link.serve, args=(minio_port, ports[way], way == "total"), daemon=True)
        for way in ["each", "total"]
    ]
    for process in links:
        process.start()
    try:
        for port in ports.values():
            link.wait_for(port)
        for name in args.set or SETS:
            source = work / "source" / name
            source.mkdir(parents=True)
            measure_set(args, programs, work, name, source, SETS[name](source, args.mib, words), ports)
            shutil.rmtree(source)
    finally:
        for process in links:
            process.terminate()
        server.close()


def measure_set(args, programs, work, name, source, versions, ports):
    first = next(iter(programs.values()))
    base = dict(os.environ, HOME=str(work), **SECRETS)
    places = {"local": str(work / f"repository-{name}")}
    for way, port in ports.items():
        places[way] = f"s3:http://127.0.0.1:{port}/{BUCKET}/{name}"
    keys = {way: str(work / f"key-{name}-{'local' if way == 'local' else 's3'}") for way in places}
    for way in ["local", "s3"]:
        env = dict(base, LARDER_REPOSITORY=places[way], LARDER_PASSWORD="x")
        run([first, "init"], env)
        run([first, "key", "add", "--file", keys[way]], env)
    for _ in range(args.versions):
        next(versions)
        for way in ["local", "s3"]:
            env = dict(base, LARDER_REPOSITORY=places[way], LARDER_KEY_FILE=keys[way])
            run([first, "backup", "--quiet", "--no-cache", "--series", name, str(source)], env)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    print(f"\n{name}: {size / 1e6:.0f} MB, newest of {args.versions} versions\n", flush=True)
    print("| way | program | MB/s | seconds | CPU seconds | peak MB |\n|---|---|---:|---:|---:|---:|", flush=True)
    for way in args.way or WAYS:
        env = dict(base, LARDER_REPOSITORY=places[way], LARDER_KEY_FILE=keys[way])
        uses = {program: [] for program in programs}
        for number in range(args.rounds):
            order = list(programs.items())
            for program, path in order if number % 2 == 0 else order[::-1]:
                target = work / "target"
                line = [path, "restore", "--quiet", "--no-cache", "--series", name, "latest", "--target", str(target)]
                line += ["--memory", args.memory] if args.memory else []
                uses[program].append(run(line, env))
                if number == 0:
                    restored = target / source.relative_to("/")
                    subprocess.run(["diff", "-r", str(source), str(restored)], check=True)
                shutil.rmtree(target)
        for program, used in uses.items():
            wall, cpu, peak = (statistics.median(values) for values in zip(*used))
            print(f"| {way} | {program} | {size / 1e6 / wall:.0f} | {wall:.2f} | {cpu:.2f} | {peak:.0f} |", flush=True)
        if way in ("each", "total"):
            print_limit(work, name, ports[way], way, args.rounds)


def print_limit(work, name, port, way, rounds):
    """What the link gives at all. MinIO has each object as a folder of that name."""
    bucket = work / "minio" / BUCKET
    data = bucket / name / "data"
    keys = sorted(str(meta.parent.relative_to(bucket)) for meta in data.rglob("xl.meta"))
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    line = ["curl", "--silent", "--fail", "--no-buffer", "--aws-sigv4", f"aws:amz:{s3.REGION}:s3"]
    line += ["--user", f"{s3.ACCESS}:{s3.SECRET}", "--parallel", "--parallel-max", "6"]
    for key in keys:
        line += ["--output", "/dev/null", f"http://127.0.0.1:{port}/{BUCKET}/{key}"]
    # In parallel it shows progress even when asked to be silent.
    wall = statistics.median(run(line, os.environ, subprocess.DEVNULL)[0] for _ in range(rounds))
    print(f"| {way} | curl, all {len(keys)} containers | {size / 1e6 / wall:.0f} as stored | {wall:.2f} | | |", flush=True)


if __name__ == "__main__":
    main()
