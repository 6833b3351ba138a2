#!/usr/bin/env python3
"""An independent reader of Larder repositories in a local folder, written from docs/format.md.

    larder_read.py REPOSITORY versions
    larder_read.py REPOSITORY jobs
    larder_read.py REPOSITORY restore VERSION TARGET

One of these opens the repository: LARDER_KEY_FILE names the key file of a machine, LARDER_PAPER_KEY a file with the lines of the
paper key, LARDER_PASSWORD is the password. VERSION is `latest`, or the beginning or end of an id. TARGET must be empty or not
exist. It shares nothing with the Rust code: that both read the same repository is what makes the format document true. Everything
is verified on the way: all authentication tags and signatures, the fingerprint of every chunk, all sums. Speed is not its business.
"""

import base64
import hashlib
import os
import stat
import sys
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from pathlib import Path

try:
    import zstandard
    from argon2.exceptions import Argon2Error
    from argon2.low_level import Type, hash_secret_raw
    from blake3 import blake3
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from kyber_py.ml_kem import ML_KEM_768
except ImportError as missing:
    sys.exit(f"larder_read.py: {missing}; the modules that it needs are in tools/requirements.txt")


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
            self.version = self.u8()
            need(self.version != 1, f"{what} was written by a development version of Larder")
            need(self.version in range(2, version + 1), f"{what} has version {self.version}; this program reads {version}")

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

    def zeros(self):
        need(not any(self.take(len(self.data) - self.at)), f"{self.what}: bytes follow its end")


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


def record(data):
    """The same with zeros behind it: the padding of a part."""
    reader = Reader(data, "a record of numbered fields")
    value = cbor_item(reader)
    reader.zeros()
    return value


def aes_open(key, number, sealed, aad, what):
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "little"), sealed, aad)
    except InvalidTag:
        raise Damaged(f"{what} does not authenticate") from None


def keyed(key, data, length=32):
    return blake3(data, key=key).digest(length=length)


def open_part(base, number, sealed, aad, what):
    """A part of a container (seal.rs): 16 bytes of salt, ciphertext, tag. It has a key of its own."""
    need(len(sealed) >= 32, f"{what} is cut short")
    place = number.to_bytes(8, "little")
    return aes_open(keyed(base, place + sealed[:16]), 0, sealed[16:], aad + place, what)


def with_length(data):
    return len(data).to_bytes(8, "little") + data


def is_signed_by(public, text, signature):
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
        return True
    except (InvalidSignature, ValueError):
        return False


def raw_public(private):
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


XWING_LABEL = bytes.fromhex("5c2e2f2f5e5c")


class XWing:
    """The private half of X-Wing (kem.rs): opens wraps."""

    def __init__(self, seed):
        expanded = hashlib.shake_256(seed).digest(96)
        self.kem_public, self.kem = ML_KEM_768.key_derive(expanded[:64])
        self.x25519 = X25519PrivateKey.from_private_bytes(expanded[64:])
        self.x_public = raw_public(self.x25519)
        self.public = self.kem_public + self.x_public

    def open(self, wrap):
        need(len(wrap) == 1120, "a wrap has another length")
        kem, x_wrap = ML_KEM_768.decaps(self.kem, wrap[:1088]), wrap[1088:]
        shared = self.x25519.exchange(X25519PublicKey.from_public_bytes(x_wrap))  # refuses an output of zeros
        return hashlib.sha3_256(kem + shared + x_wrap + self.x_public + XWING_LABEL).digest()


class Keys:
    """What a role holds (keys.rs): from the master key, or from the payload of a key object."""

    PURPOSES = {
        "fingerprints": "chunk fingerprints",
        "chunking": "chunk boundaries",
        "names": "names",
        "common": "common objects",
        "domains": "domains",
        "bind": "data binding",
        "open": "data opening",
        "index": "index",
        "sign": "operator signing",
    }
    FIELDS = {3: "fingerprints", 4: "chunking", 6: "names", 7: "common", 8: "domains", 10: "bind", 11: "open", 12: "index", 13: "sign"}

    def __init__(self, secrets, domains, opening_hash, operator_public):
        self.secrets, self.some_domains = secrets, domains
        self.opening_hash, self.operator_public = opening_hash, operator_public

    @classmethod
    def of_master(cls, master):
        derive = lambda purpose: blake3(master, derive_key_context=f"Larder format 2: {purpose}").digest()
        secrets = {name: derive(purpose) for name, purpose in cls.PURPOSES.items()}
        opening = blake3(XWing(secrets["open"]).public).digest()
        return cls(secrets, {}, opening, raw_public(Ed25519PrivateKey.from_private_bytes(secrets["sign"])))

    @classmethod
    def of_payload(cls, payload):
        fields = cbor(payload)
        if fields[0] == 15:
            return cls.of_master(fields[2])
        secrets = {name: fields[number] for number, name in cls.FIELDS.items() if number in fields}
        return cls(secrets, {row[0]: row[1] for row in fields.get(9, [])}, fields[14], fields[15])

    def secret(self, name):
        need(name in self.secrets, f"this key may not do that: it has no secret {name!r}")
        return self.secrets[name]

    def domain(self, domain):
        if domain in self.some_domains:
            return self.some_domains[domain]
        return keyed(self.secret("domains"), domain)

    def domain_id(self, name, epoch=0):
        """The id of a domain; that of the default domain, which has no name, is zeros."""
        return keyed(self.secret("names"), b"domain\0" + u32(epoch) + name)[:16] if name else bytes(16)

    def series(self, domain, name):
        return keyed(self.secret("names"), b"series\0" + domain + name)[:16]

    def is_signed(self, text, signature):
        return is_signed_by(self.operator_public, text, signature)

    @cached_property
    def x_wing(self):
        return XWing(self.secret("open"))


def paper_key(text):
    """Repository id and master key of a paper key (key_file/paper.rs)."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    need(len(lines) == 6, "a paper key has 6 lines")
    secret = b""
    for number, line in enumerate(lines):
        letters = "".join(line.split()).replace("-", "").upper().translate(str.maketrans("018", "OIB"))
        body = base64.b32decode(letters + "=" * (-len(letters) % 8))
        check = blake3(bytes([number]) + body[:8], derive_key_context="Larder paper key 1").digest()[:3]
        need(len(body) == 11 and check == body[8:], f"line {number + 1} of the paper key has a typing error")
        secret += body[:8]
    return secret[:16], secret[16:]


def machine_keys(text):
    """Repository id, key id and secret of each line of a key file (key_file/machine.rs)."""
    for line in text.splitlines():
        word, _, letters = line.strip().partition(" ")
        if word == "LARDER-KEY-2":
            letters = letters.strip()
            body = base64.b32decode(letters + "=" * (-len(letters) % 8))
            need(len(body) == 60 and blake3(body[:56]).digest()[:4] == body[56:], "a line of the key file is damaged")
            yield body[:16], body[16:24], body[24:56]


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
    """A row of a recipe node (recipe.rs): a segment's chunks, a whole one and differences; its digest; bytes and chunks
    below it; its cover and proof."""
    chunk = take_chunk(reader, names)
    chain = [take_chunk(reader, names) for _ in range(reader.u8())] if reader.version > 2 else []
    size = sum(part[3] for part in [*chain, chunk])
    need(not chain or len(chain) <= 3 and size <= 2 << 20, "a segment has too many or too large bases")
    row = [*chain, chunk], reader.take(32), reader.varint(), reader.varint()
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
    reader = Reader(data, "segment", version=2)
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


def take_difference(data, of_base, base, runs):
    """The records and superchunks of a segment that is stored as a difference to another one (difference.rs)."""
    reader = Reader(data, "difference")
    kind = reader.u8()
    need(kind in (0xD2, 0xD3), "a difference is of another version")
    need(reader.take(32) == of_base, "a difference is to another segment")
    steps = reader.rows(lambda row: (row.varint(), row.varint(), row.varint()))
    superchunks = reader.rows(lambda row: [row.varint(), row.varint(), row.take(16)])
    new, none = take_records(data[reader.at :])
    need(not none, "a difference has superchunks among its new records")
    records, old, at = [], 0, 0
    for passed, taken, inserted in steps:
        need(old + passed + taken <= len(base) and at + inserted <= len(new), "a step of a difference is out of bounds")
        if kind == 0xD3:
            begin, shift = old + passed, len(records) - old - passed
            kept = (run for run in runs if begin <= run[0] and run[0] + run[1] <= begin + taken)
            superchunks += [[first + shift, count, mac] for first, count, mac in kept]
        records += base[old + passed : old + passed + taken] + new[at : at + inserted]
        old, at = old + passed + taken, at + inserted
    need(at == len(new), "a difference has records that no step uses")
    return records, sorted(superchunks)


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

    MAGIC, END, WRAP = b"LCT\x02", 84, 1120
    CHUNKS, FRAMES, TRAILER, PADDING = 1 << 32, (1 << 32) + 1, (1 << 32) + 2, (1 << 32) + 3

    def __init__(self, repository, name):
        self.path, self.keys, self.name = repository.root / name, repository.keys, name
        length, wrap_len = self.path.stat().st_size, self.WRAP if name.startswith("data/") else 0
        need(length >= self.END + wrap_len, f"{name} is cut short")
        end = self.read(length - self.END - wrap_len, self.END + wrap_len)
        need(end[-4:] != b"LCT\x01", f"{name} was written by a development version of Larder")
        need(end[-4:] == self.MAGIC, f"{name} is not a container of version 2")
        self.wrap, self.domain = end[:wrap_len], end[-20:-4]
        self.tables = keyed(self.keys.domain(self.domain), b"tables\0" + name.encode())
        trailer = Reader(self.open(self.TRAILER, end[wrap_len:-20], before=self.wrap), "container trailer")
        chunk_count, frame_count, chunks_len, frames_len, payload_len, pad_len = (trailer.u32() for _ in range(6))
        need(trailer.take(8) == length.to_bytes(8, "little"), f"{name} has another length than its trailer says")
        trailer.finish()
        tables_at = length - self.END - wrap_len - frames_len - chunks_len
        need(tables_at >= pad_len, f"{name}: its tables are longer than it is")
        if pad_len:
            padding = self.open(self.PADDING, self.read(tables_at - pad_len, pad_len))
            need(not any(padding), f"{name}: its padding is not zero")
        chunks = Reader(self.open(self.CHUNKS, self.read(tables_at, chunks_len)), "chunk table", version=2)
        need(chunks.u8() == 0, f"{name} holds kinds of chunks that are not known")
        fingerprints = [chunks.take(32) for _ in range(chunk_count)]
        self.chunks, offset = {}, 0
        for fingerprint in fingerprints:
            self.chunks[offset] = fingerprint, chunks.varint()
            offset += self.chunks[offset][1]
        chunks.finish()
        sealed = self.open(self.FRAMES, self.read(tables_at + chunks_len, frames_len))
        frames, self.frames, at, payload = Reader(sealed, "frame table", version=2), [], 0, 0
        for _ in range(frame_count):
            codec, raw_len, sealed_len = frames.u8(), frames.varint(), frames.varint()
            need(codec in (0, 1) and 0 < raw_len <= 64 << 20, f"{name}: a frame is out of bounds")
            self.frames.append((payload, codec, raw_len, at, sealed_len))
            at, payload = at + sealed_len, payload + raw_len
        frames.finish()
        need(offset == payload == payload_len and at == tables_at - pad_len, f"{name}: its tables do not add up")

    @cached_property
    def frame_base(self):
        """What the keys of its frames come from: those of data are for the owner of the opening key."""
        if not self.wrap:
            return keyed(self.keys.domain(self.domain), b"frames\0" + self.name.encode())
        shared = self.keys.x_wing.open(self.wrap)
        return keyed(self.keys.secret("bind"), b"frames\0" + shared + self.wrap + self.name.encode())

    def read(self, at, count):
        with open(self.path, "rb") as file:
            file.seek(at)
            return file.read(count)

    def open(self, number, sealed, before=b""):
        base = self.frame_base if number < self.CHUNKS else self.tables
        return open_part(base, number, sealed, before + self.MAGIC + self.domain, f"part {number} of {self.path}")

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
    """A folder that a password, a paper key (text) or a key file (text) opens."""

    MAY_BE_UNSIGNED = (b"LLSE", b"LDON")

    def __init__(self, root, password=None, paper=None, key_file=None):
        self.root = Path(root)
        self.password, self.key_file = password, key_file
        self.container = lru_cache(64)(lambda name: Container(self, name))
        self.frame = lru_cache(64)(lambda name, number: self.container(name).frame(number))
        paper_id, master = paper_key(paper) if paper else (None, None)
        problem = None
        for config in self.configs():
            try:
                Reader(config[4:], "config", version=2)
                need(config[:8] == b"LCFG\x02\0\0\0", "config is not a configuration of version 2")
                fields = cbor(config[8:-64])
                need(not fields[7], f"the repository needs {fields[7]}, which this program does not know")
                need(paper_id in (None, fields[0]), "the paper key is of another repository")
                self.keys = Keys.of_master(master) if paper else self.unwrap(fields[0])
                signed = self.keys.is_signed(b"Larder configuration 2\0" + config[:-64], config[-64:])
                public = blake3(fields[8]).digest() == self.keys.opening_hash and fields[9] == self.keys.operator_public
                need(signed and public, "config is not that of the operator")
                return
            except (Damaged, LookupError, ValueError, TypeError, RecursionError) as error:
                problem = problem or error
        if not paper:
            raise problem or Damaged("there is no config, and no key has a copy of it")
        # Reading needs nothing that config says.
        print(f"config cannot be used: {problem or 'it is missing'}", file=sys.stderr)
        self.keys = Keys.of_master(master)

    def key_names(self):
        folder = self.root / "keys"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def configs(self):
        """The object config, and then its copies in the keys (field 7), which stand in for one that is lost."""
        if (self.root / "config").is_file():
            yield (self.root / "config").read_bytes()
        for path in self.key_names():
            try:
                copy = self.key_parts(path.read_bytes())[0].get(7)
            except (Damaged, OSError, LookupError, ValueError, TypeError, RecursionError, AttributeError):
                continue
            if isinstance(copy, bytes):
                yield copy

    def unwrap(self, repository_id):
        unreadable = None
        for path in self.key_names():
            try:
                keys = self.unwrap_one(path, repository_id)
            except (Damaged, Argon2Error, LookupError, ValueError, TypeError, RecursionError) as error:
                unreadable = f"{path}: {error}"  # others may still open
                continue
            if keys:
                return keys
        raise Damaged(unreadable or "the password or key file opens no key")

    @staticmethod
    def key_parts(data):
        """Fields, everything before the commitment, commitment, wrapped payload (key_file.rs)."""
        Reader(data[4:], "key", version=2)
        reader = Reader(data, "key")
        need(reader.take(8) == b"LKEY\x02\0\0\0", "not a key of version 2")
        count = reader.u32()
        need(count <= 8192, "its fields are too long")
        fields, head = cbor(reader.take(count)), data[: 12 + count]
        commitment, wrapped = reader.take(32), reader.take(reader.u32())
        reader.take(64)
        reader.finish()
        return fields, head, commitment, wrapped

    def unwrap_one(self, path, repository_id):
        """The keys, or None if this object is of another password or key file."""
        data, key_id = path.read_bytes(), bytes.fromhex(path.name)
        fields, head, commitment, wrapped = self.key_parts(data)
        key = self.unlock(fields, key_id, repository_id)
        if key is None:
            return None
        context = head + key_id + repository_id
        derived = keyed(key, context, length=64)
        if derived[32:] != commitment:
            return None
        keys = Keys.of_payload(aes_open(derived[:32], 0, wrapped, context, "key"))
        signed = b"Larder key 2\0" + data[:-64] + key_id + repository_id
        need(keys.is_signed(signed, data[-64:]), "it is not signed by the operator")
        return keys

    def unlock(self, fields, key_id, repository_id):
        """The secret of the key file, or argon2id of the password; None where the other is needed."""
        if 0 not in fields or fields[0] is None:
            lines = machine_keys(self.key_file or "")
            return next((secret for line, key, secret in lines if (line, key) == (repository_id, key_id)), None)
        if self.password is None:
            return None
        memory, passes, lanes = (fields[0][number] for number in range(3))
        need(memory <= 1 << 20 and memory * passes <= 4 << 20 and lanes <= 64, "it asks for too much")
        return hash_secret_raw(self.password, fields[1], passes, memory, lanes, hash_len=32, type=Type.ID)

    def realm(self, name, domain):
        """The secret that seals an object."""
        if name.startswith("index"):
            return self.keys.secret("index")
        if name.startswith(("settings/default/", "closed/")):
            return self.keys.secret("common")
        return self.keys.domain(domain)

    def object_key(self, name, header):
        return keyed(self.realm(name, header[8:24]), b"object\0" + header[24:40] + name.encode())

    def open_object(self, name, magic):
        """Domain, whether it is signed, and the parts of a sealed object (seal.rs), with the zeros behind them."""
        reader, parts = Reader((self.root / name).read_bytes(), name), []
        header = reader.take(40)
        need(header[:4] == magic, f"{name} is of another kind")
        Reader(header[4:], name, version=2)
        signed = header[6]
        need(header[5] == 1 and header[7] == 0 and signed <= 1, f"{name} has an unknown cipher or flags")
        clear = name.startswith(("index", "settings/default/", "closed/"))
        need(not (clear and any(header[8:24])), f"{name} has a domain where none is")
        key = self.object_key(name, header)
        while reader.at < len(reader.data):
            sealed = reader.take(reader.u32())
            last = reader.at == len(reader.data)
            aad = header + len(parts).to_bytes(4, "little") + bytes([last])
            parts.append(aes_open(key, len(parts), sealed, aad, name))
        if signed:
            signature = parts.pop(1)
            body = blake3(b"".join(map(with_length, parts[1:]))).digest()
            text = blake3(with_length(name.encode()) + header + with_length(parts[0]) + body).digest()
            genuine = self.keys.is_signed(b"Larder operator signature 2\0" + text, signature[32:])
            need(signature[:32] == body and genuine, f"{name} is not signed by the operator")
        first = magic == b"LMAN" and name.endswith("/0")
        need(signed or first or magic in self.MAY_BE_UNSIGNED, f"{name} is not signed by an operator")
        return header[8:24], bool(signed), parts

    def object(self, name, magic):
        return self.open_object(name, magic)[2]

    def versions(self):
        """Id, name of the manifest and summary of all versions, oldest first."""
        found, closed = [], self.closed_domains()
        for folder in (self.root / "versions").glob("*/*"):
            series, job = folder.parts[-2:]
            if not self.is_forgotten(series, job):
                generations = sorted((int(path.name) for path in folder.iterdir()), reverse=True)
                names = [f"versions/{series}/{job}/{number}" for number in generations]
                found.extend(version for version in self.newest(series, job, names) if self.counts(version, closed))
        return sorted(found, key=lambda version: (version[2][3], version[0]))

    def closed_domains(self):
        """Of each closed domain the digests of the versions that count."""
        closed = {}
        for path in sorted((self.root / "closed").glob("*")):
            name = f"closed/{path.name}"
            try:
                fields = record(self.object(name, b"LCLS")[0])
                domain = self.keys.domain_id(fields[3].encode(), fields[4])
                need(fields[3] and domain.hex() == path.name, f"{name} names another domain")
                need(len(fields[5]) % 16 == 0, f"{name}: a digest is cut off")
                closed[domain] = [fields[5][at : at + 16] for at in range(0, len(fields[5]), 16)]
            except Damaged as error:
                print(f"{name} is ignored: {error}", file=sys.stderr)
        return closed

    def counts(self, version, closed):
        """Whether its domain is open, or was closed with it."""
        job, name, summary = version
        domain = (self.root / name).read_bytes()[8:24]
        series, time = bytes.fromhex(name.split("/")[1]), summary[3].to_bytes(8, "little")
        purpose = "Larder format 2: version of a closed domain"
        digest = blake3(series + bytes.fromhex(job) + time + summary[17], derive_key_context=purpose).digest(length=16)
        if digest in closed.get(domain, [digest]):
            return True
        print(f"{name} does not count: its domain was closed without it", file=sys.stderr)
        return False

    def is_forgotten(self, series, job):
        """Whether there is a genuine mark; anyone can put something else there."""
        name = f"forgotten/{series}/{job}"
        if not (self.root / name).exists():
            return False
        try:
            return bool(record(self.object(name, b"LFGT")[0]))
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
                    lease = record(self.object(f"jobs/{job}/{number}", b"LLSE")[0])
                    break
                except Damaged as error:
                    print(f"jobs/{job}/{number} is ignored: {error}", file=sys.stderr)
            if "done" in names:
                done = record(self.object(f"jobs/{job}/done", b"LDON")[0])
            yield job, lease, done

    def newest(self, series, job, names):
        """The first that opens of several generations of a manifest, as a list of at most one version."""
        problem = None
        for name in names:
            try:
                if (self.root / name).read_bytes()[:4] == b"LABT":
                    need(not any(b"".join(self.object(name, b"LABT"))), f"{name} is no mark")
                    problem = None
                    continue
                domain, _, parts = self.open_object(name, b"LMAN")
                summary = record(parts[0])
                need(summary[0].hex() == job, f"{name} is of another version")
                need(series == self.keys.series(domain, summary[1].encode()).hex(), f"{name} is of another series")
                # The witness (18) tells the machine that made the version, and only that one, that it did.
                witness, domain_name = summary.get(18), summary.get(19) or ""
                need(witness is None or type(witness) is bytes and len(witness) == 24, f"{name}: its witness has another length")
                own = not domain_name or domain == self.keys.domain_id(domain_name.encode(), summary.get(20) or 0)
                need(own, f"{name} names another domain than its own")
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
        real = keyed(self.keys.secret("fingerprints"), data)
        need(len(data) == size and real == fingerprint, f"a chunk of {name} has another fingerprint")
        return data

    def stream(self, nodes):
        """The chunks of a stream. Each level is checked against what the level above says of it."""
        for node, content, *sums, cover in nodes:
            reader = Reader(self.chunk(node), "recipe node", version=3)
            _, names = take_places(reader)
            segments = reader.rows(lambda row: take_segment(row, names))
            reader.finish()
            found = [sum(segment[2] for segment in segments), sum(segment[3] for segment in segments), len(segments)]
            need(found == sums, "a recipe node does not add up")
            covers = [segment[4] for segment in segments]
            begins = (sum(one[0] for one in covers if one), covers[0][1]) if covers and covers[0] else None
            need(cover == begins, "a recipe node begins elsewhere than its manifest says")
            need(digest_node(segments) == content, "a recipe node has another content than its manifest says")
            for (whole, *differences), content, *sums, cover, proof in segments:
                records, superchunks = take_records(self.chunk(whole))
                base = whole
                for difference in differences:
                    records, superchunks = take_difference(self.chunk(difference), base[0], records, superchunks)
                    base = difference
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
    reader = Reader(data, "metadata block", version=2)
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
    body.zeros()
    roots = digest_stream(data) + digest_stream(metadata)
    need(roots == record(head)[17] == matches[-1][2][17], "the recipes have another content than the summary says")
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
        text = lambda variable: Path(os.environ[variable]).read_text() if os.environ.get(variable) else None
        paper, key_file = text("LARDER_PAPER_KEY"), text("LARDER_KEY_FILE")
        password = None if paper or key_file else os.environb.get(b"LARDER_PASSWORD", b"")
        repository = Repository(arguments[0], password, paper, key_file)
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
