#!/usr/bin/env python3
"""An independent reader of Larder repositories in a local folder, written from docs/format.md.

    larder_read.py REPOSITORY versions
    larder_read.py REPOSITORY jobs
    larder_read.py REPOSITORY restore VERSION TARGET

LARDER_PASSWORD holds the password. VERSION is `latest`, or the beginning or end of an id. TARGET must be empty or not exist.
It shares nothing with the Rust code: that both read the same repository is what makes the format document true. Everything
is verified on the way: all authentication tags, the fingerprint of every chunk, all sums. Speed is not its business.
"""

import os
import stat
import sys
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

import zstandard
from argon2.exceptions import Argon2Error
from argon2.low_level import Type, hash_secret_raw
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class Damaged(Exception):
    """What was read is not what the format says."""


def need(condition, what):
    if not condition:
        raise Damaged(what)


class Reader:
    """Primitives of the binary layouts (wire.rs)."""

    def __init__(self, data, what, version=None):
        self.data, self.at, self.what = data, 0, what
        if version is not None:
            found = self.u8()
            need(found == version, f"{what} has version {found}; this program reads {version}")

    def take(self, count):
        need(count <= len(self.data) - self.at, f"{self.what} is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return int.from_bytes(self.take(4), "little")

    def varint(self):
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                need(value < 1 << 64 and (byte != 0 or shift == 7), f"{self.what}: a number is too long")
                return value
            need(shift < 70, f"{self.what}: a number is too long")

    def signed(self):
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def bytes(self):
        return self.take(self.varint())

    def rows(self, row):
        return [row(self) for _ in range(self.varint())]

    def finish(self):
        need(self.at == len(self.data), f"{self.what}: bytes follow its end")


def cbor_item(reader):
    """One item of CBOR (RFC 8949); lengths are always given in what Larder writes."""
    first = reader.u8()
    kind, count = first >> 5, first & 31
    need(count < 28, "a field is not CBOR of known length")
    if count >= 24:
        count = int.from_bytes(reader.take(1 << (count - 24)), "big")
    if kind in (0, 1):
        return count if kind == 0 else -1 - count
    if kind in (2, 3):
        return reader.take(count) if kind == 2 else reader.take(count).decode()
    if kind == 4:
        return [cbor_item(reader) for _ in range(count)]
    if kind == 5:
        return {cbor_item(reader): cbor_item(reader) for _ in range(count)}
    need(kind == 7 and count in (20, 21, 22), "a field is of an unknown kind")
    return {20: False, 21: True, 22: None}[count]


def cbor(data):
    reader = Reader(data, "a record of numbered fields")
    value = cbor_item(reader)
    reader.finish()
    return value


def aes_open(key, number, sealed, aad, what):
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "little"), sealed, aad)
    except InvalidTag:
        raise Damaged(f"{what} does not authenticate") from None


def keyed(key, data, length=32):
    return blake3(data, key=key).digest(length=length)


def take_places(reader):
    """The jobs and the names of containers that a structure's rows refer to (places.rs)."""
    jobs = reader.rows(lambda row: row.take(16).hex())
    names = []
    for job, number in reader.rows(lambda row: (row.varint(), row.varint())):
        need(job < len(jobs), f"{reader.what} names a job it does not list")
        names.append(f"{'meta' if number & 1 else 'data'}/{jobs[job]}/{number >> 1}")
    return jobs, names


def take_container(reader, names):
    number = reader.varint()
    need(number < len(names), f"{reader.what} names a container it does not list")
    return names[number]


def take_chunk(reader, names):
    """Fingerprint, container, offset, size."""
    return reader.take(32), take_container(reader, names), reader.varint(), reader.varint()


def take_flag(reader):
    flag = reader.u8()
    need(flag < 2, f"{reader.what}: a flag is neither 0 nor 1")
    return flag


def take_cover(reader):
    """The cover: bytes of data and the first path, or None."""
    return (reader.varint(), reader.bytes()) if take_flag(reader) else None


def take_node(reader, names):
    """A row of a recipe (recipe.rs): a node as a chunk; its digest; bytes, chunks and segments below it; its cover."""
    return take_chunk(reader, names), reader.take(32), reader.varint(), reader.varint(), reader.varint(), take_cover(reader)


def take_segment(reader, names):
    """A row of a recipe node (recipe.rs): a segment as a chunk; its digest; bytes and chunks below it; its cover and proof."""
    row = take_chunk(reader, names), reader.take(32), reader.varint(), reader.varint()
    reader.take(8 * reader.u8())
    reader.rows(lambda use: (take_container(use, names), use.varint(), use.varint()))
    cover, proof = take_cover(reader), None
    if take_flag(reader):
        proof = reader.take(17), [reader.varint() for _ in range(reader.u8())]
    return *row, cover, proof


def take_run(reader, names):
    """A row of a segment (segment.rs): kind, container, born, offset, count of records; where a superchunk begins its MAC."""
    row = reader.u8(), take_container(reader, names), reader.varint(), reader.varint(), reader.varint()
    return *row, reader.take(16) if row[0] == 1 else None


def take_records(data):
    """The chunk records of a segment (segment.rs), and its superchunks: first record, count, MAC."""
    reader = Reader(data, "segment", version=1)
    jobs, names = take_places(reader)
    runs = reader.rows(lambda row: take_run(row, names))
    even, places, superchunks = reader.varint(), [], []
    for kind, container, born, offset, count, mac in runs:
        need(kind <= 2 and born <= len(jobs) and count <= len(data), "a run of a segment is out of bounds")
        if kind == 1:
            superchunks.append([len(places), count, mac])
        elif kind == 2:
            need(superchunks and sum(superchunks[-1][:2]) == len(places), "a superchunk goes on that did not begin")
            superchunks[-1][1] += count
        for _ in range(count):
            places.append((container, offset, even or reader.varint()))
            offset += places[-1][2]
    records = [(reader.take(32), *place) for place in places]
    reader.finish()
    return records, superchunks


def digest(what, *parts):
    """The digest of a content (content.rs)."""
    return blake3(b"".join(parts), derive_key_context=f"Larder format 2: content of a {what}").digest()


def u32(number):
    return number.to_bytes(4, "little")


def u64(number):
    return number.to_bytes(8, "little")


def digest_cover(cover):
    return b"\0" if cover is None else b"\1" + u64(cover[0]) + u32(len(cover[1])) + cover[1]


def digest_segment(records, superchunks, cover, proof):
    of_records = b"".join(record[0] + u32(record[3]) for record in records)
    of_superchunks = u32(len(superchunks)) + b"".join(u32(first) + u32(count) + mac for first, count, mac in superchunks)
    of_proof = b"\0"
    if proof:
        of_proof = b"\1" + proof[0] + bytes([len(proof[1])]) + b"".join(map(u32, proof[1]))
    return digest("segment", of_records, of_superchunks, digest_cover(cover), of_proof)


def digest_node(segments):
    return digest("node", *(content + u64(size) + u32(chunks) for _, content, size, chunks, *_ in segments))


def digest_stream(nodes):
    row = lambda node: node[1] + u64(node[2]) + u64(node[3]) + u32(node[4]) + digest_cover(node[5])
    return digest("stream", *map(row, nodes))


class Container:
    """The tables of a container (container.rs)."""

    MAGIC, TAIL = b"LCT\x01", 48
    CHUNKS, FRAMES, TRAILER = 1 << 32, (1 << 32) + 1, (1 << 32) + 2

    def __init__(self, repository, name):
        self.path, self.key = repository.root / name, keyed(repository.key("container sealing"), name.encode())
        length = self.path.stat().st_size
        need(length >= self.TAIL, f"{name} is cut short")
        end = self.read(length - self.TAIL, self.TAIL)
        need(end[-4:] == self.MAGIC, f"{name} is not a container of version 1")
        trailer = Reader(self.open(self.TRAILER, end[:-4]), "container trailer")
        chunk_count, frame_count, chunks_len, frames_len, payload_len = (trailer.u32() for _ in range(5))
        need(trailer.take(8) == length.to_bytes(8, "little"), f"{name} has another length than its trailer says")
        trailer.finish()
        tables_at = length - self.TAIL - frames_len - chunks_len
        need(tables_at >= 0, f"{name}: its tables are longer than it is")
        chunks = Reader(self.open(self.CHUNKS, self.read(tables_at, chunks_len)), "chunk table", version=1)
        need(chunks.u8() == 0, f"{name} holds kinds of chunks that are not known")
        fingerprints = [chunks.take(32) for _ in range(chunk_count)]
        self.chunks, offset = {}, 0
        for fingerprint in fingerprints:
            self.chunks[offset] = fingerprint, chunks.varint()
            offset += self.chunks[offset][1]
        chunks.finish()
        sealed = self.open(self.FRAMES, self.read(tables_at + chunks_len, frames_len))
        frames, self.frames, at, payload = Reader(sealed, "frame table", version=1), [], 0, 0
        for _ in range(frame_count):
            codec, raw_len, sealed_len = frames.u8(), frames.varint(), frames.varint()
            need(codec in (0, 1) and 0 < raw_len <= 64 << 20, f"{name}: a frame is out of bounds")
            self.frames.append((payload, codec, raw_len, at, sealed_len))
            at, payload = at + sealed_len, payload + raw_len
        frames.finish()
        need(offset == payload == payload_len and at == tables_at, f"{name}: its tables do not add up")

    def read(self, at, count):
        with open(self.path, "rb") as file:
            file.seek(at)
            return file.read(count)

    def open(self, number, sealed):
        return aes_open(self.key, number, sealed, self.MAGIC, f"part {number} of {self.path}")

    def frame_of(self, offset):
        holding = [number for number, row in enumerate(self.frames) if row[0] <= offset < row[0] + row[2]]
        need(holding, f"{self.path} has no payload byte {offset}")
        return holding[0]

    def frame(self, number):
        _, codec, raw_len, at, sealed_len = self.frames[number]
        raw = self.open(number, self.read(at, sealed_len))
        if codec == 1:
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=raw_len)
        need(len(raw) == raw_len, f"frame {number} of {self.path} has another size than its table says")
        return raw


class Repository:
    """A folder whose master key is known."""

    def __init__(self, root, password):
        self.root = Path(root)
        self.container = lru_cache(64)(lambda name: Container(self, name))
        self.frame = lru_cache(64)(lambda name, number: self.container(name).frame(number))
        problem = None
        for config in self.configs():
            try:
                need(config[:8] == b"LCFG\x01\0\0\0", "config is not a configuration of version 1")
                fields = cbor(config[8:-32])
                need(not fields[7], f"the repository needs {fields[7]}, which this program does not know")
                self.master = self.unwrap(password, fields[0])
                mac = keyed(self.key("configuration authentication"), config[:-32])
                need(mac == config[-32:], "config does not authenticate")
                return
            except (Damaged, LookupError, ValueError, TypeError, RecursionError) as error:
                problem = problem or error
        raise problem or Damaged("there is no config, and no key has a copy of it")

    def configs(self):
        """The object config, and then its copies in the keys (field 7), which stand in for one that is lost."""
        if (self.root / "config").is_file():
            yield (self.root / "config").read_bytes()
        for path in sorted((self.root / "keys").iterdir()):
            try:
                copy = cbor(path.read_bytes()[12:-80]).get(7)
            except (Damaged, OSError, LookupError, ValueError, TypeError, RecursionError, AttributeError):
                continue
            if isinstance(copy, bytes):
                yield copy

    def key(self, purpose):
        return blake3(self.master, derive_key_context=f"Larder format 1: {purpose}").digest()

    def unwrap(self, password, repository_id):
        unreadable = None
        for path in sorted((self.root / "keys").iterdir()):
            try:
                master = self.unwrap_one(path, password, repository_id)
            except (Damaged, Argon2Error, LookupError, ValueError, TypeError, RecursionError) as error:
                unreadable = f"{path}: {error}"  # others may still open
                continue
            if master:
                return master
        raise Damaged(unreadable or "the password opens no key")

    @staticmethod
    def unwrap_one(path, password, repository_id):
        """The master key, or None if this key is of another password (key_file.rs)."""
        head, commitment, wrapped = (path.read_bytes()[part] for part in (slice(-80), slice(-80, -48), slice(-48, None)))
        need(head[:8] == b"LKEY\x01\0\0\0" and len(head) <= 12 + 4096, "not a key of version 1")
        need(int.from_bytes(head[8:12], "little") == len(head) - 12, "its length is wrong")
        fields = cbor(head[12:])
        memory, passes, lanes = (fields[0][number] for number in range(3))
        need(memory <= 1 << 20 and memory * passes <= 4 << 20 and lanes <= 64, "it asks for too much")
        key = hash_secret_raw(password, fields[1], passes, memory, lanes, hash_len=32, type=Type.ID)
        context = head + bytes.fromhex(path.name) + repository_id
        derived = keyed(key, context, length=64)
        if derived[32:] != commitment:
            return None
        return aes_open(derived[:32], 0, wrapped, context, "key")

    def object(self, name, magic, version=1):
        """The parts of a sealed object (seal.rs)."""
        reader, parts = Reader((self.root / name).read_bytes(), name), []
        header = reader.take(24)
        need(header[:8] == magic + bytes([version, 1, 0, 0]), f"{name} is not of version {version} and a known cipher")
        key = keyed(self.key("object sealing"), header[8:] + name.encode())
        while reader.at < len(reader.data):
            sealed = reader.take(reader.u32())
            last = reader.at == len(reader.data)
            aad = header + len(parts).to_bytes(4, "little") + bytes([last])
            parts.append(aes_open(key, len(parts), sealed, aad, name))
        return parts

    def versions(self):
        """Id, name of the manifest and summary of all versions, oldest first."""
        found = []
        for folder in (self.root / "versions").glob("*/*"):
            series, job = folder.parts[-2:]
            if not self.is_forgotten(series, job):
                generations = sorted((int(path.name) for path in folder.iterdir()), reverse=True)
                found.extend(self.newest(series, job, [f"versions/{series}/{job}/{number}" for number in generations]))
        return sorted(found, key=lambda version: (version[2][3], version[0]))

    def is_forgotten(self, series, job):
        """Whether there is a genuine mark; anyone can put something else there."""
        name = f"forgotten/{series}/{job}"
        if not (self.root / name).exists():
            return False
        try:
            return bool(cbor(self.object(name, b"LFGT")[0]))
        except Damaged as error:
            print(f"{name} is ignored: {error}", file=sys.stderr)
            return False

    def jobs(self):
        """Id, newest lease that opens and closing mark of all jobs that left any, oldest first."""
        for folder in sorted((self.root / "jobs").iterdir()):
            job, names = folder.name, {path.name for path in folder.iterdir()}
            lease = done = None
            for number in sorted((int(name) for name in names - {"done"}), reverse=True):
                try:
                    lease = cbor(self.object(f"jobs/{job}/{number}", b"LLSE")[0])
                    break
                except Damaged as error:
                    print(f"jobs/{job}/{number} is ignored: {error}", file=sys.stderr)
            if "done" in names:
                is_first = (folder / "done").read_bytes()[4] == 1
                part = self.object(f"jobs/{job}/done", b"LDON", version=1 if is_first else 2)[0]
                need(bool(part) != is_first, f"jobs/{job}/done is no closing mark")
                done = {} if is_first else cbor(part)
            yield job, lease, done

    def newest(self, series, job, names):
        """The first that opens of several generations of a manifest, as a list of at most one version."""
        problem = None
        for name in names:
            try:
                if (self.root / name).read_bytes()[:4] == b"LABT":
                    need(self.object(name, b"LABT") == [b""], f"{name} is no mark")
                    problem = None
                    continue
                summary = cbor(self.object(name, b"LMAN")[0])
                need(summary[0].hex() == job, f"{name} is of another version")
                wanted = keyed(self.key("series names"), summary[1].encode())[:16].hex()
                need(series == wanted, f"{name} is of another series")
                return [(job, name, summary)]
            except Damaged as error:
                problem = problem or error
        if problem:
            raise problem
        return []

    def chunk(self, record):
        fingerprint, name, offset, size = record
        container = self.container(name)
        need(container.chunks.get(offset) == (fingerprint, size), f"{name} does not list a chunk of a recipe")
        number = container.frame_of(offset)
        start = offset - container.frames[number][0]
        data = self.frame(name, number)[start : start + size]
        real = keyed(self.key("chunk fingerprints"), data)
        need(len(data) == size and real == fingerprint, f"a chunk of {name} has another fingerprint")
        return data

    def stream(self, nodes):
        """The chunks of a stream. Each level is checked against what the level above says of it."""
        for node, content, *sums, cover in nodes:
            reader = Reader(self.chunk(node), "recipe node", version=2)
            _, names = take_places(reader)
            segments = reader.rows(lambda row: take_segment(row, names))
            reader.finish()
            found = [sum(segment[2] for segment in segments), sum(segment[3] for segment in segments), len(segments)]
            need(found == sums, "a recipe node does not add up")
            covers = [segment[4] for segment in segments]
            whole = (sum(one[0] for one in covers if one), covers[0][1]) if covers and covers[0] else None
            need(cover == whole, "a recipe node begins elsewhere than its manifest says")
            need(digest_node(segments) == content, "a recipe node has another content than its manifest says")
            for segment, content, *sums, cover, proof in segments:
                records, superchunks = take_records(self.chunk(segment))
                need([sum(record[3] for record in records), len(records)] == sums, "a segment does not add up")
                found = digest_segment(records, superchunks, cover, proof)
                need(found == content, "a segment has another content than its node says")
                yield from map(self.chunk, records)


class Entry:
    """One entry of the metadata stream (metadata.rs)."""

    KINDS = ["file", "directory", "symlink", "hard link", "fifo", "char", "block"]

    def __init__(self, reader, previous, owners):
        flags, shared = reader.u8(), reader.varint()
        need(flags < 0x80 and flags & 7 < 7, "an entry has unknown flags")
        self.kind, self.extents, self.xattrs = self.KINDS[flags & 7], [], []
        before, seconds = (previous.path, previous.seconds) if previous else (b"", 0)
        need(shared <= len(before), "a path shares more than there is")
        self.path = before[:shared] + reader.bytes()
        bad = b"\0" in self.path or any(name in (b"", b".", b"..") for name in self.path.split(b"/"))
        need(not bad, "a path could leave the target")
        owner, self.mode = reader.varint(), reader.varint()
        need(owner < len(owners), "an entry names no owner")
        self.uid, self.gid = owners[owner]
        self.seconds, self.mtime = self.time(reader, seconds)
        if not flags & 64:
            self.time(reader, self.seconds)  # ctime: tells writers that a file is unchanged
        self.atime = self.time(reader, self.seconds)[1] if flags & 16 else self.mtime
        reader.signed()  # inode: the same
        if self.kind == "file":
            self.size, end = reader.varint(), 0
            for gap, length in reader.rows(lambda row: (row.varint(), row.varint())) if flags & 32 else [(0, self.size)]:
                self.extents.append((end + gap, length))
                end += gap + length
            need(end <= self.size, "an extent lies outside of its file")
        elif self.kind in ("symlink", "hard link"):
            self.target = reader.bytes()
        elif self.kind in ("char", "block"):
            self.device = os.makedev(reader.varint(), reader.varint())
        if flags & 8:
            self.xattrs = reader.rows(lambda row: (row.bytes(), row.bytes()))

    @staticmethod
    def time(reader, base):
        seconds = (base + reader.signed() + (1 << 63)) % (1 << 64) - (1 << 63)
        return seconds, seconds * 10**9 + reader.varint()


def block_entries(data):
    """The entries of a block (metadata.rs)."""
    reader = Reader(data, "metadata block", version=1)
    count, data_bytes = reader.varint(), reader.varint()
    name = lambda row: row.take(max(row.varint() - 1, 0))
    owners = [row[:2] for row in reader.rows(lambda row: (row.varint(), row.varint(), name(row), name(row)))]
    entry, total = None, 0
    for _ in range(count):
        entry = Entry(reader, entry, owners)
        total += sum(length for _, length in entry.extents)
        yield entry
    reader.finish()
    need(total == data_bytes, "a block's data does not add up")


class Restore:
    """Makes the entries of a version below a folder that has nothing in it yet."""

    def __init__(self, target, chunks):
        os.makedirs(target, exist_ok=True)
        need(not os.listdir(target), f"{target} is not empty")
        self.target, self.chunks, self.rest = os.fsencode(target), chunks, b""
        self.folders, self.others, self.last, self.notes = {b"": None}, set(), b"", 0

    def data(self, length):
        """The next bytes of the data stream, in pieces."""
        while length > 0:
            self.rest = self.rest or next(self.chunks, b"")
            need(self.rest, "the data stream ends before the entries do")
            piece, self.rest = self.rest[:length], self.rest[length:]
            length -= len(piece)
            yield piece

    def permitted(self, action, *arguments, **named):
        try:
            action(*arguments, **named)
        except OSError as error:
            self.notes += 1
            print(f"{os.fsdecode(arguments[0])}: {error}", file=sys.stderr)

    def entry(self, entry):
        # Every byte but the slash keeps its rank, so a folder comes directly before what it holds.
        order = entry.path.replace(b"/", b"\0")
        need(order > self.last, "the entries are out of order")
        self.last = order
        # Only folders made here may be parents, so no symlink of the version leads out of the target.
        names = entry.path.split(b"/")
        for parent in (b"/".join(names[:count]) for count in range(1, len(names))):
            need(parent not in self.others, f"{entry.path!r} lies below something that is not a folder")
            if parent not in self.folders:
                os.mkdir(os.path.join(self.target, parent))
                self.folders[parent] = None
        path = os.path.join(self.target, entry.path)
        if entry.kind == "directory":
            os.mkdir(path, 0o700)
            self.folders[entry.path] = entry
            return  # its metadata follows when nothing is put into it any more
        self.others.add(entry.path)
        if entry.kind == "file":
            with open(path, "xb") as file:
                for offset, length in entry.extents:
                    file.seek(offset)
                    file.writelines(self.data(length))
                file.truncate(entry.size)
        elif entry.kind == "symlink":
            os.symlink(entry.target, path)
        elif entry.kind == "hard link":
            need(entry.target in self.others, f"{entry.path!r} links to nothing before it")
            self.permitted(os.link, os.path.join(self.target, entry.target), path, follow_symlinks=False)
        elif entry.kind == "fifo":
            os.mkfifo(path, 0o600)
        else:
            kind = stat.S_IFCHR if entry.kind == "char" else stat.S_IFBLK
            self.permitted(os.mknod, path, kind | 0o600, entry.device)
        if entry.kind != "hard link" and os.path.lexists(path):
            self.metadata(entry, path)

    def metadata(self, entry, path):
        if os.geteuid() == 0:
            os.chown(path, entry.uid, entry.gid, follow_symlinks=False)  # first: it clears set-id bits and capabilities
        for name, value in entry.xattrs:
            self.permitted(os.setxattr, path, name, value, follow_symlinks=False)
        if entry.kind != "symlink":
            os.chmod(path, entry.mode)
        os.utime(path, ns=(entry.atime, entry.mtime), follow_symlinks=False)

    def finish(self):
        need(not self.rest and next(self.chunks, None) is None, "the data stream goes on behind the entries")
        for path, folder in reversed(self.folders.items()):
            if folder:
                self.metadata(folder, os.path.join(self.target, path))
        if self.notes:
            print(f"{self.notes} things could not be restored with this user's rights", file=sys.stderr)


def restore(repository, wanted, target):
    fits = lambda job: wanted == "latest" or job.startswith(wanted) or job.endswith(wanted)
    matches = [version for version in repository.versions() if fits(version[0])]
    need(matches and (wanted == "latest" or len(matches) == 1), f"{len(matches)} versions fit {wanted!r}")
    head, body = repository.object(matches[-1][1], b"LMAN")
    body = Reader(body, "version manifest", version=2)
    _, names = take_places(body)
    data, metadata = (body.rows(lambda row: take_node(row, names)) for _ in range(2))
    rows = body.rows(lambda row: (take_container(row, names), *(row.varint() for _ in range(5))))
    need(all(row[1] <= row[3] and row[2] <= row[4] for row in rows), "a container is used more than it holds")
    body.finish()
    roots = digest_stream(data) + digest_stream(metadata)
    need(roots == cbor(head)[17] == matches[-1][2][17], "the recipes have another content than the summary says")
    target = Restore(target, repository.stream(data))
    for block in repository.stream(metadata):
        for entry in block_entries(block):
            target.entry(entry)
    target.finish()


def main(arguments):
    verbs = {2: ("versions", "jobs"), 4: ("restore",)}
    if arguments[1:2] == [] or arguments[1] not in verbs.get(len(arguments), ()):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        repository = Repository(arguments[0], os.environb.get(b"LARDER_PASSWORD", b""))
        if arguments[1] == "restore":
            restore(repository, *arguments[2:])
            return 0
        if arguments[1] == "jobs":
            for job, lease, done in repository.jobs():
                layout = {None: "no layout", 0: "standard", 1: "lifecycle"}[(lease or {}).get(10)]
                outcome = {None: "unsaid", 0: "committed", 1: "nothing", 2: "task over"}[(done or {}).get(0)]
                state = outcome if done is not None else "ended" if (lease or {}).get(11) else "open"
                counts = [(done or {}).get(field) for field in (2, 3, 4)]
                print(job, repr((lease or {}).get(1)), layout, state, *("-" if n is None else n for n in counts))
            return 0
        for job, _, summary in repository.versions():
            time = datetime.fromtimestamp(summary[3] / 1000, timezone.utc).isoformat(timespec="seconds")
            print(job, time, repr(summary[1]), summary[6], *map(os.fsdecode, summary[9]))
    except (Damaged, OSError) as error:
        print(f"larder_read: {error}", file=sys.stderr)
        return 1
    except (zstandard.ZstdError, Argon2Error, LookupError, ValueError, TypeError, RecursionError) as error:
        # Fields of other types than the format says; most of all of config and keys, which are read before they are proved.
        print(f"larder_read: something is not what the format says ({type(error).__name__}: {error})", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
