#!/usr/bin/env python3
"""Writes an OCI image with one layer from a folder, as a tar that `podman load`, `docker load` and `skopeo` read.

    dist/oci.py --version VERSION --created SECONDS --machine MACHINE FOLDER FILE

The same folder gives the same bytes: owners are root, times are SECONDS, and names are sorted. Needs no daemon.
Standard library only.
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
import time

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Folders with a mode of their own.
MODES = {"tmp": 0o1777, "root": 0o700}


def tar_of(members, seconds):
    """A tar of (name, content or None for a folder, mode)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            info.mode, info.mtime, info.size = mode, seconds, len(content or b"")
            info.uname = info.gname = "root"
            tar.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def members_of(top):
    """The folders and files below a folder, sorted by name."""
    found = []
    for folder, folders, files in os.walk(top):
        for name in folders:
            path = os.path.relpath(os.path.join(folder, name), top)
            found.append((path, None, MODES.get(path, 0o755)))
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                content = file.read()
            found.append((os.path.relpath(path, top), content, 0o755 if os.access(path, os.X_OK) else 0o644))
    return sorted(found, key=lambda member: member[0])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--version", required=True)
    arguments.add_argument("--created", required=True, type=int)
    arguments.add_argument("--machine", required=True)
    arguments.add_argument("--level", type=int, default=9, help="how hard to compress, from 0 to 9")
    arguments.add_argument("folder")
    arguments.add_argument("file")
    arguments = arguments.parse_args()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(arguments.created))
    blobs = {}

    def blob(content, media_type, **more):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    def as_json(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    layer = tar_of(members_of(arguments.folder), arguments.created)
    architecture = ARCHITECTURES.get(arguments.machine, arguments.machine)
    config = {
        "created": created, "architecture": architecture, "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/larder"], "Cmd": ["--help"], "WorkingDir": "/",
            "Env": ["PATH=/usr/bin", "HOME=/root"],
            "Labels": {"org.opencontainers.image.title": "larder", "org.opencontainers.image.version": arguments.version,
                       "org.opencontainers.image.licenses": "Apache-2.0 OR MIT"},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created, "created_by": "dist/oci.py"}],
    }
    kind = "application/vnd.oci.image."
    manifest = {
        "schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
        "config": blob(as_json(config), kind + "config.v1+json"),
        "layers": [blob(gzip.compress(layer, max(arguments.level, 1), mtime=0), kind + "layer.v1.tar+gzip")],
    }
    index = {
        "schemaVersion": 2, "mediaType": kind + "index.v1+json",
        "manifests": [blob(as_json(manifest), kind + "manifest.v1+json",
                           platform={"architecture": architecture, "os": "linux"},
                           annotations={"org.opencontainers.image.ref.name": arguments.version,
                                        "io.containerd.image.name": f"docker.io/library/larder:{arguments.version}"})],
    }
    members = [("blobs", None, 0o755), ("blobs/sha256", None, 0o755)]
    members += [(f"blobs/sha256/{digest}", content, 0o644) for digest, content in sorted(blobs.items())]
    members += [("index.json", as_json(index), 0o644), ("oci-layout", as_json({"imageLayoutVersion": "1.0.0"}), 0o644)]
    with open(arguments.file, "wb") as file:
        file.write(tar_of(members, arguments.created))


main()
