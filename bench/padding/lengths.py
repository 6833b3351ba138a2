"""Lengths of a repository's objects with and without their padding, and the lengths that other rules would give."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
PASSWORD = "benchmark"
STEP_MIN, STEP_MAX = 8 << 10, 64 << 10
# The least padding: a sealed part without contents.
PART_EXTRA = 32


def steps(length):
    """The padded length of a container with the default chunk size, as crates/format/src/padding.rs has it."""
    step = min(max(1 << max(length.bit_length() - 7, 0), STEP_MIN), STEP_MAX)
    padded = -(-length // step) * step
    return padded if padded == length or padded - length >= PART_EXTRA else padded + step


def padme(length):
    """The rule of PURBs (Nikitin et al. 2019): as many zero bits at the end as the length of its length allows."""
    exponent = length.bit_length() - 1
    mask = (1 << max(exponent - exponent.bit_length(), 0)) - 1
    return (length + mask) & ~mask


@dataclass(frozen=True)
class Object:
    """An object: its folder (`data`, `meta`, `versions`, …), its length, its length without padding, and its chunks."""

    name: str
    folder: str
    length: int
    plain: int
    chunks: int = 0

    def __post_init__(self):
        """The rule that this file states must be the one of the program, or comparisons with other rules mean nothing."""
        if self.folder in ("data", "meta") and steps(self.plain) != self.length:
            raise SystemExit(f"{self.name} has {self.length} bytes, {self.plain} without padding: not the rule of this script")


class Larder:
    """A new repository in a folder, with a key file, and the program that writes to it."""

    def __init__(self, work):
        default = str(ROOT / "target" / "release" / "larder")
        self.program = str(Path(os.environ.get("BENCH_LARDER", default)).resolve())
        self.root, self.key = work / "repository", work / "key"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(work), "LARDER_REPOSITORY": str(self.root),
                    "LARDER_STATE": str(work / "state"), "LARDER_CACHE_DIR": str(work / "cache")}
        self.env["LARDER_PASSWORD"] = PASSWORD
        self.run("init")
        self.run("key", "add", "--role", "all", "--file", self.key)
        del self.env["LARDER_PASSWORD"]
        self.env["LARDER_KEY_FILE"] = str(self.key)

    def run(self, *args, cwd=None):
        done = subprocess.run([self.program, "--quiet", *args], env=self.env, cwd=cwd, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"larder {' '.join(map(str, args))} failed: {done.stderr.strip()}")

    def listing(self):
        """Names and lengths of all objects: all that an observer of the store has."""
        found = {}
        for folder, _, files in os.walk(self.root):
            for file in files:
                path = Path(folder, file)
                found[str(path.relative_to(self.root))] = path.stat().st_size
        return found

    def objects(self, names=None):
        """The objects with their lengths without padding, read with the key by the independent reader."""
        import larder_read

        repository = larder_read.Repository(self.root, key_file=self.key.read_text())
        for name, length in (names or self.listing()).items():
            folder = name.partition("/")[0]
            if folder in ("data", "meta"):
                chunks, zeros = container(larder_read.Container(repository, name), length)
            else:
                chunks, zeros = 0, padding_of(larder_read, repository, name) if folder == "versions" else 0
            yield Object(name, folder, length, length - zeros, chunks)


def container(opened, length):
    """Chunks and bytes of padding of a container, from its trailer."""
    end = opened.END + len(opened.wrap)
    trailer = opened.read(length - end, end)[len(opened.wrap) : -20]
    fields = opened.open(opened.TRAILER, trailer, before=opened.wrap)
    return int.from_bytes(fields[:4], "little"), int.from_bytes(fields[20:24], "little")


def padding_of(larder_read, repository, name):
    """Bytes of padding of a manifest."""
    head, body = repository.object(name, b"LMAN")
    reader = larder_read.Reader(head, name)
    larder_read.cbor_item(reader)
    # Both parts have zeros behind their contents.
    zeros = len(head) - reader.at
    body = larder_read.Reader(body, name, version=2)
    _, names = larder_read.take_places(body)
    for _ in range(2):
        body.rows(lambda row: larder_read.take_node(row, names))
    body.rows(lambda row: (larder_read.take_container(row, names), *(row.varint() for _ in range(5))))
    return zeros + len(body.data) - body.at
