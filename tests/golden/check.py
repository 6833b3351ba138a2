#!/usr/bin/env python3
"""Restores every version of the golden repositories with the independent reader, and compares.

    check.py

Then it plants objects and marks, and damages objects one by one, and expects the reader to notice. Without root, owners are not compared.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from list_tree import lines

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent.parent / "tools"))
import larder_read  # noqa: E402  (its folder had to be named first)

READER = [sys.executable, str(HERE.parent.parent / "tools" / "larder_read.py")]


def read(objects, *arguments):
    environment = dict(os.environ, LARDER_PASSWORD="golden")
    return subprocess.run([*READER, str(objects), *arguments], env=environment, capture_output=True)


def without_owners(text):
    return [re.sub(r" \d+:\d+ ", " ", line, count=1) for line in text]


def restores(objects, job, expected):
    """Whether the version is restored as it was, and what went wrong."""
    with tempfile.TemporaryDirectory() as target:
        result = read(objects, "restore", job, target + "/out")
        if result.returncode != 0:
            return result.stderr.decode().strip()
        found, expected = lines(target + "/out/larder-golden"), expected.read_text().splitlines()
        if os.geteuid() != 0:
            found, expected = without_owners(found), without_owners(expected)
        return None if found == expected else "\n".join(sorted(set(found) ^ set(expected)))


def damage(objects, expected, job):
    """One damaged byte in each object that the version needs: an error, or the right version, never a wrong one."""
    seed = random.randrange(1 << 32)
    print(f"  damage, seed {seed}")
    chance = random.Random(seed)
    noticed = 0
    for path in sorted(path for path in objects.rglob("*") if path.is_file() and "jobs" not in path.parts):
        if "keys" in path.parts:
            continue  # a key's cost would be tried out, whatever it says
        whole = path.read_bytes()
        torn = bytearray(whole)
        torn[chance.randrange(len(torn))] ^= 1 << chance.randrange(8)
        path.write_bytes(torn)
        problem = restores(objects, job, expected)
        path.write_bytes(whole)
        noticed += problem is not None
        if problem and not problem.startswith("larder_read: "):
            sys.exit(f"{path.relative_to(objects)} was damaged, and that gave: {problem}")
    if noticed == 0:
        sys.exit("no damage was noticed")


def versions(objects):
    """Ids of the versions that are listed, oldest first."""
    listed = read(objects, "versions")
    if listed.returncode != 0:
        sys.exit(listed.stderr.decode())
    return [line.split(" ")[0] for line in listed.stdout.decode().splitlines()]


def marks(objects, jobs):
    """Garbage in the place of a mark or a later generation hides nothing; a mark sealed here, from the format's description, does."""
    manifest = next(path for path in objects.glob("versions/*/*/0") if path.parent.name == jobs[-1])
    name = f"forgotten/{manifest.parts[-3]}/{jobs[-1]}"
    mark, generation = objects / name, manifest.with_name("1")
    mark.parent.mkdir(parents=True)
    genuine = sealed_mark(larder_read.Repository(objects, b"golden"), name)
    for planted in (b"", b"garbage", b"LFGT\x02\x01\x01\0" + bytes(60), manifest.read_bytes(), genuine[:-1]):
        mark.write_bytes(planted)
        generation.write_bytes(planted)
        if versions(objects) != jobs:
            sys.exit(f"a version was hidden by {planted[:8]}")
    generation.unlink()
    mark.write_bytes(genuine)
    if versions(objects) != jobs[:-1]:
        sys.exit("a forgotten version is listed")
    mark.unlink()
    print("  marks ok")


def sealed_mark(repository, name):
    """A map of time, host and reason as CBOR, sealed and signed as an object of the default domain."""
    text = lambda string: bytes([0x60 + len(string)]) + string
    fields = b"\xa3\x00\x18\x2a\x01" + text(b"golden") + b"\x02" + text(b"a test")
    header = b"LFGT\x02\x01\x01\0" + bytes(16) + bytes(range(16))
    body = blake3(b"").digest()
    with_length = larder_read.with_length
    signed = blake3(with_length(name.encode()) + header + with_length(fields) + body).digest()
    operator = Ed25519PrivateKey.from_private_bytes(repository.keys.secret("sign"))
    signature = body + operator.sign(b"Larder operator signature 2\0" + signed)
    key, out = repository.object_key(name, header), header
    for number, part in enumerate((fields, signature)):
        nonce, aad = number.to_bytes(12, "little"), header + number.to_bytes(4, "little") + bytes([number])
        sealed = AESGCM(key).encrypt(nonce, part, aad)
        out += len(sealed).to_bytes(4, "little") + sealed
    return out


def main():
    for repository in sorted(HERE.glob("repository-v*")):
        print(repository.name)
        with tempfile.TemporaryDirectory() as copy:
            objects = Path(shutil.copytree(repository / "objects", copy + "/objects"))
            jobs = versions(objects)
            expected = sorted(repository.glob("version-*.txt"))
            if len(jobs) != len(expected):
                sys.exit(f"{len(jobs)} versions instead of {len(expected)}")
            for job, text in zip(jobs, expected):
                problem = restores(objects, job, text)
                print(f"  {text.stem} {'ok' if problem is None else 'DIFFERS'}")
                if problem is not None:
                    sys.exit(problem)
            marks(objects, jobs)
            damage(objects, expected[-1], jobs[-1])


if __name__ == "__main__":
    main()
