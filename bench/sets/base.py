"""What all data sets share: where they lie, their scales, and the manifest that says a set is complete.

A set is a folder `bench/data/<scale>/<set>/` with the input files and a `manifest.json`, written last. The manifest holds
the parameters the set was made with; when they are asked for again, nothing is made.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

DATA_ROOT = Path(__file__).resolve().parent.parent / "data"
SEED = 20260411
MIB = 1 << 20


@dataclass(frozen=True)
class Version:
    """One version of a set: the file or folder that holds it, its logical size, and facts worth printing."""

    label: str
    path: Path
    bytes: int
    facts: dict


def say(*words):
    """Progress goes to standard error, so that standard output stays usable by scripts."""
    print(*words, file=sys.stderr, flush=True)


def set_folder(name, scale):
    return DATA_ROOT / scale / name


def load(name, scale):
    """The versions of a complete set, or None when it has not been made."""
    folder = set_folder(name, scale)
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    return [Version(v["label"], folder / v["file"], v["bytes"], v["facts"]) for v in manifest["versions"]]


def is_current(name, scale, params):
    """True when the set on disk was made with exactly these parameters."""
    try:
        manifest = json.loads((set_folder(name, scale) / "manifest.json").read_text())
    except FileNotFoundError:
        return False
    return manifest["params"] == json.loads(json.dumps(params))


def begin(name, scale):
    """An empty folder for the set. Removing the manifest first means a half-made set is never taken for a whole one."""
    folder = set_folder(name, scale)
    (folder / "manifest.json").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def finish(name, scale, params, versions):
    folder = set_folder(name, scale)
    rows = [{"label": v.label, "file": str(v.path.relative_to(folder)), "bytes": v.bytes, "facts": v.facts} for v in versions]
    temp = folder / "manifest.json.new"
    temp.write_text(json.dumps({"params": params, "versions": rows}, indent=1) + "\n")
    os.rename(temp, folder / "manifest.json")
    total = sum(v.bytes for v in versions)
    say(f"{name}: {len(versions)} versions, {total / 1e6:.0f} MB in {folder}")
    return versions
