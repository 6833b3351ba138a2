#!/usr/bin/env python3
"""Backup and restore over SFTP: Larder beside restic, through the same server on pipes.

    bench/sftp.py                                  8 files of 4 MiB, three runs, medians
    bench/sftp.py --files 20 --kib 20000 --runs 5

Both programs start OpenSSH's `sftp-server` instead of ssh (`-o sftp.command=`), so encryption and the network of SSH are not measured.
Each run makes a new repository, backs up once, and restores into an empty folder, which is compared with the source. Half of the data
can be compressed. CPU is user and system time of the program and of the server. The files are at BENCH_WORK (default: the folder for
temporary files); the program is that of BENCH_LARDER (default: target/release/larder). A tool that is not installed is left out.
"""

import argparse
import filecmp
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

LARDER = os.environ.get("BENCH_LARDER", "target/release/larder")
SERVERS = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--kib", type=int, default=4096, help="size of each file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tools", nargs="+", choices=["larder", "restic"], default=["larder", "restic"])
    args = parser.parse_args()
    server = next((path for path in SERVERS if os.access(path, os.X_OK)), None)
    if server is None:
        raise SystemExit("there is no sftp-server of OpenSSH on this machine")
    programs = {"larder": str(pathlib.Path(LARDER).resolve()), "restic": shutil.which("restic")}
    print("| tool | backup, s | CPU, s | restore, s | CPU, s | repository, MB |\n|---|---:|---:|---:|---:|---:|")
    for tool in args.tools:
        if not programs[tool] or not os.access(programs[tool], os.X_OK):
            print(f"| {tool} | not installed | | | | |")
            continue
        runs = [measure(args, tool, programs[tool], server, number) for number in range(args.runs)]
        columns = [statistics.median(column) for column in zip(*runs)]
        print(f"| {tool} | " + " | ".join(f"{column:.2f}" for column in columns) + " |", flush=True)


def measure(args, tool, program, server, number):
    """Seconds and CPU seconds of a backup and of a restore, and the size of the repository in MB."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_WORK")) as folder:
        work, rng = pathlib.Path(folder), random.Random(number)
        source = work / "source"
        source.mkdir()
        for file in range(args.files):
            pages = (rng.randbytes(2048) + bytes(2048) for _ in range(args.kib // 4))
            (source / f"{file:04}").write_bytes(b"".join(pages))
        (work / "password").write_text("a password\n")
        env = dict(os.environ, HOME=folder, XDG_CACHE_HOME=str(work / "cache"))
        store = ["-r", f"sftp:nobody@nowhere:{work}/repository", "-o", f"sftp.command={server}"]
        store += ["--password-file", str(work / "password")]
        if tool == "larder":
            store += ["--state", str(work / "state")]

        def run(*line):
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run([program, *store, *line], env=env, cwd=folder, check=True, capture_output=True)
            seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
            return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        run("init")
        backup = run("backup", "source")
        restore = run("restore", "latest", "--target", str(work / "restored"))
        restored = next(path for path in (work / "restored").rglob("source") if path.is_dir())
        names = sorted(os.listdir(source))
        same, _, _ = filecmp.cmpfiles(source, restored, names, shallow=False)
        if sorted(same) != names:
            raise SystemExit(f"{tool}: the restored files differ from the source")
        size = sum(path.stat().st_size for path in (work / "repository").rglob("*") if path.is_file())
        return *backup, *restore, size / 1e6


main()
