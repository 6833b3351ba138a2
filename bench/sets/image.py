"""A disk image of a small system, changed in place from version to version.

An ext4 image is filled with files of the machine this runs on: programs, libraries, documents. Each further version is a copy
in which some folders were `upgraded`, as a package manager does it: old files removed, new ones written to wherever the file
system finds room, half of them with the old content, half with a content that differs here and there. mke2fs and debugfs do
all that without a mount and without root. Files of another machine make another image; sizes and behaviour stay alike.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

from . import base

ROOTS = ["/usr/bin", "/usr/lib", "/usr/share", "/usr/include"]
# Bytes of files, bytes of the image, number of versions.
SCALES = {"small": (150 * base.MIB, 224 * base.MIB, 4), "full": (900 * base.MIB, 1280 * base.MIB, 5)}
FILE_MAX = 32 * base.MIB
# Share of the files' bytes that a version upgrades.
UPGRADED = [0.06, 0.15, 0.03, 0.10]
EDIT_EVERY = 48 << 10
IDENTITY = "6c617264-6572-4265-8063-68696d616765"
# mke2fs and debugfs take the time from this variable, so that inodes do not carry the hour of the run.
TIME = {"E2FSPROGS_FAKE_TIME": "1700000000"}


def choose_files(rng, wanted):
    """Regular files of this machine up to `wanted` bytes, whole folders at a time: folder -> {name: path}."""
    folders = []
    for root in ROOTS:
        for folder, inner, names in os.walk(root):
            inner.sort()
            folders.append((folder, sorted(names)))
    rng.shuffle(folders)
    chosen, total = {}, 0
    for folder, names in folders:
        for name in names:
            path = os.path.join(folder, name)
            try:
                size = os.lstat(path).st_size
                # debugfs reads its script word by word: names with spaces or quotes cannot be written.
                plain = os.path.isfile(path) and not os.path.islink(path) and not set(path) & set(" \"'\\")
            except OSError:
                continue
            if plain and 0 < size <= FILE_MAX and total + size <= wanted:
                chosen.setdefault(folder, {})[name] = path
                total += size
    return chosen


def edited(rng, content):
    """The content with one small edit in every 48 KiB on average: overwritten, inserted or deleted bytes."""
    parts, at = [], 0
    while at < len(content):
        step = int(rng.expovariate(1 / EDIT_EVERY)) + 1
        parts.append(content[at : at + step])
        at += step
        kind, length = rng.randrange(3), rng.randrange(1, 200)
        if kind < 2:
            parts.append(rng.randbytes(length))
        if kind != 1:
            at += length
    return b"".join(parts)


def debugfs(image, script):
    path = image.with_suffix(".debugfs")
    path.write_text("".join(line + "\n" for line in script))
    done = subprocess.run(["debugfs", "-w", "-f", path, image], env={**os.environ, **TIME}, capture_output=True, text=True)
    path.unlink()
    # debugfs ends with 0 whatever went wrong; it repeats each command, after its prompt, and then complains below it.
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if ": " in line and not line.startswith(("debugfs:", "Allocated inode"))]
    if done.returncode or complaints:
        raise SystemExit(f"debugfs on {image}: {complaints[:5] or done.stderr}")


def create(image, size, chosen, scratch):
    tree = scratch / "tree"
    for folder, files in sorted(chosen.items()):
        inside = tree / folder.lstrip("/")
        inside.mkdir(parents=True)
        for name, path in files.items():
            shutil.copyfile(path, inside / name)
    options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-U", IDENTITY, "-E", f"hash_seed={IDENTITY},root_owner=0:0"]
    subprocess.run(["mke2fs", *options, "-d", tree, image, f"{size // 1024}k"], env={**os.environ, **TIME}, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def upgrade(image, share, rng, chosen, scratch):
    """Rewrites whole folders until `share` of the bytes is reached. Returns the number of files written."""
    total = sum(os.lstat(path).st_size for files in chosen.values() for path in files.values())
    folders = sorted(chosen)
    rng.shuffle(folders)
    script, done, count = [], 0, 0
    for folder in folders:
        if done >= total * share:
            break
        for name, path in sorted(chosen[folder].items()):
            content = Path(path).read_bytes()
            done += len(content)
            new = scratch / f"file{count}"
            new.write_bytes(edited(rng, content) if rng.random() < 0.5 else content)
            script += [f"rm {folder}/{name}", f"write {new} {folder}/{name}"]
            count += 1
    debugfs(image, script)
    for number in range(count):
        (scratch / f"file{number}").unlink()
    return count


def make(scale, versions=None):
    files_bytes, image_bytes, count = SCALES[scale]
    count = versions or count
    params = {"seed": base.SEED, "files_bytes": files_bytes, "image_bytes": image_bytes, "versions": count, "revision": 1}
    if base.is_current("image", scale, params):
        return base.load("image", scale)
    folder = base.begin("image", scale)
    scratch = folder / "scratch"
    scratch.mkdir()
    chosen = choose_files(random.Random(f"{base.SEED} image files"), files_bytes)
    out = []
    for number in range(1, count + 1):
        image = folder / f"v{number:02}" / "disk.img"
        image.parent.mkdir()
        if number == 1:
            create(image, image_bytes, chosen, scratch)
            facts = {"files": sum(map(len, chosen.values()))}
        else:
            subprocess.run(["cp", "--sparse=always", folder / f"v{number - 1:02}" / "disk.img", image], check=True)
            rng = random.Random(f"{base.SEED} image {number}")
            facts = {"upgraded": upgrade(image, UPGRADED[(number - 2) % len(UPGRADED)], rng, chosen, scratch)}
        facts["allocated"] = image.stat().st_blocks * 512
        out.append(base.Version(f"v{number:02}", image.parent, image.stat().st_size, facts))
        base.say(f"image v{number:02}: {image.stat().st_size / 1e6:.1f} MB, {facts}")
    scratch.rmdir()
    return base.finish("image", scale, params, out)
