"""Releases of one big source project, as tar files and as a tree that is updated in place.

The project is Kubernetes, taken with the Go command from whatever module proxy it is set to (`GOPROXY`): 8,000 files and
about 80 MB a release, five minor lines with three patch releases each, so that small and large steps alternate. The module
file leaves out vendored code. Its checksum is verified by the Go command, so every run of this script makes the same bytes.

The tars are sorted, with one fixed time and owner for every entry and the same top folder in every release. That is kinder
to large chunks than a downloaded release tar is, whose headers all change because its top folder carries the version.
"""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

from . import base

MODULE = "k8s.io/kubernetes"
TOP = "kubernetes"
RELEASES = """
    v1.30.0 v1.30.4 v1.30.14 v1.31.0 v1.31.4 v1.31.14 v1.32.0 v1.32.3 v1.32.13 v1.33.0 v1.33.6 v1.33.13 v1.34.0 v1.34.2 v1.34.4
""".split()
# Half of the small set are patch steps and one is a step to the next minor line, as in the full one.
SCALES = {"small": ["v1.33.0", "v1.33.6", "v1.33.13", "v1.34.0"], "full": RELEASES}
# The release whose tree is backed up alone: about 8,600 files, 80 MB.
TREE_RELEASE = "v1.36.1"
FIXED_TIME = 1_700_000_000
DAY = 86_400


def fetch(release, cache):
    """The module file of a release, verified by the Go command."""
    env = dict(os.environ, GOMODCACHE=str(cache), GOFLAGS="-modcacherw")
    done = subprocess.run(["go", "mod", "download", "-json", f"{MODULE}@{release}"], env=env, cwd=cache, capture_output=True, text=True)
    answer = json.loads(done.stdout or "{}")
    if "Zip" not in answer:
        raise SystemExit(f"cannot fetch {MODULE}@{release}: {answer.get('Error') or done.stderr.strip()}")
    return Path(answer["Zip"])


def write_tar(module_zip, out):
    """Turns a module file into a tar: sorted, folders included, one time and owner. Returns the number of files."""
    with zipfile.ZipFile(module_zip) as source, tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        # Module files name their entries `module@version/path`.
        names = {TOP + "/" + info.filename.split("@", 1)[1].split("/", 1)[1]: info for info in source.infolist()}
        folders = {str(parent) for name in names for parent in Path(name).parents if str(parent) != "."}
        for name in sorted(folders | set(names)):
            entry = tarfile.TarInfo(name)
            entry.mtime = FIXED_TIME
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                content = source.read(names[name])
                entry.size, entry.mode = len(content), 0o755 if name.endswith(".sh") else 0o644
                tar.addfile(entry, io.BytesIO(content))
    return len(names)


def make_tars(name, scale, releases):
    params = {"module": MODULE, "releases": releases, "revision": 1}
    if base.is_current(name, scale, params):
        return base.load(name, scale)
    folder = base.begin(name, scale)
    out = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for number, release in enumerate(releases, 1):
            cache = Path(scratch) / release
            cache.mkdir()
            path = folder / f"v{number:02}" / f"{TOP}.tar"
            path.parent.mkdir()
            files = write_tar(fetch(release, cache), path)
            shutil.rmtree(cache)
            facts = {"release": release, "files": files}
            out.append(base.Version(f"v{number:02}", path.parent, path.stat().st_size, facts))
            base.say(f"{name} v{number:02}: {release}, {files} files, {path.stat().st_size / 1e6:.1f} MB")
    return base.finish(name, scale, params, out)


def make(scale, versions=None):
    return make_tars("tars", scale, SCALES[scale][:versions])


def make_tree(scale, _versions=None):
    """The tar of one release; the harness unpacks it with `update_tree` where it measures."""
    return make_tars("tree8600", scale, [TREE_RELEASE])


def update_tree(tar_path, number, tree):
    """Brings `tree` to the content of a tar, as an update tool would: files that did not change keep their time.

    What changed or is new gets the time of version `number`; what the tar does not have goes. Returns the bytes of all files.
    """
    stamp = (FIXED_TIME + number * DAY) * 10**9 + 123_456_789
    tree.mkdir(parents=True, exist_ok=True)
    wanted = set()
    touched_folders = {tree}
    total = 0
    with tarfile.open(tar_path) as tar:
        for entry in tar:
            inner = entry.name.partition("/")[2]
            if not inner:
                continue
            path = tree / inner
            wanted.add(path)
            if entry.isdir():
                if not path.is_dir():
                    path.unlink(missing_ok=True)
                    path.mkdir()
                    touched_folders |= {path, path.parent}
                continue
            content = tar.extractfile(entry).read()
            total += len(content)
            if path.is_file():
                if path.stat().st_size == len(content) and path.read_bytes() == content:
                    continue
            else:
                if path.is_dir():
                    shutil.rmtree(path)
                touched_folders.add(path.parent)
            path.write_bytes(content)
            path.chmod(entry.mode)
            os.utime(path, ns=(stamp, stamp))
    for folder, _, files in os.walk(tree, topdown=False):
        for name in files:
            if (Path(folder) / name) not in wanted:
                (Path(folder) / name).unlink()
                touched_folders.add(Path(folder))
        if Path(folder) != tree and Path(folder) not in wanted:
            shutil.rmtree(folder)
            touched_folders.add(Path(folder).parent)
    for folder in touched_folders:
        if folder.is_dir():
            os.utime(folder, ns=(stamp, stamp))
    return total
