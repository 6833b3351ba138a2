#!/usr/bin/env python3
"""Creates a later generation of a version, as a client with the key can that may only create objects: nothing is replaced or deleted.

    forge_generation.py REPOSITORY VICTIM-SERIES ATTACKER-SERIES kept | own | unsigned

The forged manifest has the metadata recipe of the oldest version of the first series, and the data recipe of the newest of the second.
Its summary is the true one, with the true content roots (`kept`) or with those of its recipes (`own`). It is signed, as only an operator's
key can, or not, as who holds a backup key can make it (`unsigned`). Prints its name.
"""
import os
import sys
from pathlib import Path

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
import larder_read as lr  # noqa: E402  (its folder had to be named first)


def varint(number):
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def parts_of(repository, name):
    """The summary, both recipes and the container table of a manifest."""
    head, body = repository.object(name, b"LMAN")
    reader = lr.Reader(body, "version manifest", version=2)
    _, names = lr.take_places(reader)
    data, metadata = (reader.rows(lambda row: lr.take_node(row, names)) for _ in range(2))
    table = reader.rows(lambda row: (lr.take_container(row, names), *(row.varint() for _ in range(5))))
    reader.zeros()
    return head, data, metadata, table


def body_of(data, metadata, table):
    jobs, containers = [], []

    def number(name):
        job = bytes.fromhex(name.split("/")[1])
        if job not in jobs:
            jobs.append(job)
        if name not in containers:
            containers.append(name)
        return varint(containers.index(name))

    rows = b""
    for recipe in (data, metadata):
        rows += varint(len(recipe))
        for (fingerprint, container, offset, size), content, *sums, cover in recipe:
            rows += fingerprint + number(container) + varint(offset) + varint(size) + content
            rows += b"".join(map(varint, sums))
            rows += b"\0" if cover is None else b"\1" + varint(cover[0]) + varint(len(cover[1])) + cover[1]
    rows += varint(len(table))
    for container, *numbers in table:
        rows += number(container) + b"".join(map(varint, numbers))
    places = varint(len(jobs)) + b"".join(jobs) + varint(len(containers))
    for name in containers:
        kind, job, seq = name.split("/")
        places += varint(jobs.index(bytes.fromhex(job))) + varint(int(seq) << 1 | (kind == "meta"))
    return b"\2" + places + rows


def seal(repository, domain, name, magic, parts, signed):
    header = magic + b"\2\1" + bytes([signed, 0]) + domain + os.urandom(16)
    if signed:
        body = blake3(b"".join(map(lr.with_length, parts[1:]))).digest()
        text = blake3(lr.with_length(name.encode()) + header + lr.with_length(parts[0]) + body).digest()
        operator = Ed25519PrivateKey.from_private_bytes(repository.keys.secret("sign"))
        parts = [parts[0], body + operator.sign(b"Larder operator signature 2\0" + text), *parts[1:]]
    key = repository.object_key(name, header)
    out = header
    for number, part in enumerate(parts):
        aad = header + number.to_bytes(4, "little") + bytes([number == len(parts) - 1])
        sealed = AESGCM(key).encrypt(number.to_bytes(12, "little"), part, aad)
        out += lr.u32(len(sealed)) + sealed
    return out


def main(root, victim, attacker, roots):
    repository = lr.Repository(root, os.environb[b"LARDER_PASSWORD"])
    of = lambda series: [version for version in repository.versions() if version[2][1] == series]
    job, name, summary = of(victim)[0]
    head, _, metadata, table = parts_of(repository, name)
    _, data, _, others = parts_of(repository, of(attacker)[-1][1])
    if roots != "kept":
        head = head.replace(summary[17], lr.digest_stream(data) + lr.digest_stream(metadata))
    # What the attacker's data needs, and the victim's metadata.
    table = {row[0]: row for row in others + [row for row in table if row[0].startswith("meta/")]}
    forged = f"{name.rsplit('/', 1)[0]}/1"
    with open(Path(root) / forged, "xb") as file:
        parts = [head, body_of(data, metadata, list(table.values()))]
        domain = repository.open_object(name, b"LMAN")[0]
        file.write(seal(repository, domain, forged, b"LMAN", parts, roots != "unsigned"))
    print(forged)


if __name__ == "__main__":
    main(*sys.argv[1:])
