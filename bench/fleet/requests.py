#!/usr/bin/env python3
"""Counts the requests of a batch to an S3 server, with 35 MB for the process and with its usual memory.

    bench/fleet/requests.py                          1 GiB of image: 5 GB of disk, 3 minutes
    bench/fleet/requests.py --mib 256

The image and its changes are those of `rate.py`. Its first snapshot is made with the usual memory, so that containers of metadata
are large. Each batch is one process, and begins with the same repository. Its cache is that of the first backup (`warm`), or empty
(`cold`). Requests are those that MinIO counts. Needs minio in the path or in ~/.cache/larder-ci/bin. Prints a line of JSON for each
batch.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

from rate import base, change
from run import message

# MinIO computes its counts each ten seconds.
COUNTED = 11


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of the image")
    parser.add_argument("--work", type=pathlib.Path, help="existing folder for the image and the repository")
    args = parser.parse_args()
    larder = pathlib.Path(os.environ.get("BENCH_LARDER", "target/release/larder")).absolute()
    os.environ["PATH"] += f":{pathlib.Path.home()}/.cache/larder-ci/bin"
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        work = pathlib.Path(folder)
        image = work / "image.raw"
        base(image, args.mib)
        tool = Larder(larder, work)
        with tool.server():
            tool.prepare(image)
        change(image, work / "map", args.mib)
        for name in ("data", "cache", "state"):
            (work / name).rename(work / f"kept-{name}")
        for cache in ("warm", "cold"):
            for memory in ("35M", "usual"):
                for name in ("data", "cache", "state"):
                    shutil.rmtree(work / name, ignore_errors=True)
                    if name != "cache" or cache == "warm":
                        shutil.copytree(work / f"kept-{name}", work / name)
                with tool.server():
                    print(json.dumps({"cache": cache, "memory": memory, **tool.batch(image, memory)}), flush=True)


class Larder:
    def __init__(self, program, work):
        self.program, self.work = program, work
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.env = os.environ | {
            "MINIO_ROOT_USER": "minio", "MINIO_ROOT_PASSWORD": "minio-bench", "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            "AWS_ACCESS_KEY_ID": "minio", "AWS_SECRET_ACCESS_KEY": "minio-bench", "AWS_REGION": "us-east-1",
            "LARDER_REPOSITORY": f"s3:http://{self.address}/bucket/repository", "LARDER_CACHE_DIR": str(work / "cache"),
            "LARDER_STATE": str(work / "state"),
        }

    def __call__(self, *words):
        command = [self.program, *map(str, words)]
        return subprocess.run(command, env=self.env, check=True, text=True, stdout=subprocess.PIPE).stdout

    @contextlib.contextmanager
    def server(self):
        (self.work / "data/bucket").mkdir(parents=True, exist_ok=True)
        with open(self.work / "minio.log", "w") as log:
            command = ["minio", "server", "--address", self.address, self.work / "data"]
            server = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        try:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://{self.address}/minio/health/ready")
                    break
                time.sleep(0.1)
            yield
        finally:
            server.terminate()
            server.wait()

    def prepare(self, image):
        """A repository with one snapshot of the image, and a key file, as workers have one."""
        self.env["LARDER_PASSWORD"] = "bench"
        self("-q", "init")
        self("-q", "key", "add", "--role", "backup+restore+operate", "--file", self.work / "key")
        del self.env["LARDER_PASSWORD"]
        self.env["LARDER_KEY_FILE"] = str(self.work / "key")
        self("-q", "backup", "--image", image, "--series", "vm/image")
        self("-q", "optimize")

    def batch(self, image, memory):
        inventory = self.work / "images.toml"
        changes = self.work / "map"
        inventory.write_text(f'[[image]]\nname = "image"\nsource = "{image}"\nmap = "{changes}"\nsince = "latest"\n')
        before = self.counts()
        options = [] if memory == "usual" else ["--total-memory", memory]
        begin = time.monotonic()
        summary = message(self("fleet", "run", inventory, "--no-pass", "--json", *options), "fleet_summary")
        wall = round(time.monotonic() - begin, 1)
        after = self.counts()
        return {"wall": wall, "rss": summary.get("memory_bytes"), **{name: after[name] - before.get(name, 0) for name in sorted(after)}}

    def counts(self):
        """Requests by kind, and bytes that the server sent."""
        time.sleep(COUNTED)
        text = urllib.request.urlopen(f"http://{self.address}/minio/v2/metrics/cluster").read().decode()
        rows = re.findall(r'^minio_s3_requests_total\{api="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE)
        sent = re.findall(r"^minio_s3_traffic_sent_bytes\{[^}]*\} (\S+)$", text, re.MULTILINE)
        return {name: int(float(count)) for name, count in rows} | {"sent": sum(int(float(count)) for count in sent)}


if __name__ == "__main__":
    main()
