#!/usr/bin/env python3
"""Lists everything a backup must bring back of a folder, one line an entry, so that two folders can be compared as text.

    list_tree.py FOLDER
"""

import hashlib
import os
import stat
import sys


def line(root, path, links):
    """Path, kind, mode, owner, time, then what only this kind has."""
    full = os.path.join(root, path)
    found = os.lstat(full)
    kind = stat.S_IFMT(found.st_mode)
    facts = [repr(path), {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}.get(kind, "?")]
    if kind != stat.S_IFLNK:
        facts.append(f"{found.st_mode & 0o7777:04o}")
    facts += [f"{found.st_uid}:{found.st_gid}", str(found.st_mtime_ns)]
    if kind == stat.S_IFREG:
        with open(full, "rb") as file:
            facts += [str(found.st_size), hashlib.sha256(file.read()).hexdigest()[:16]]
        # Blocks differ between file systems; whether a large file is mostly holes does not.
        if found.st_size >= 1 << 20:
            facts.append("sparse" if found.st_blocks * 512 < found.st_size // 2 else "dense")
        first = links.setdefault((found.st_dev, found.st_ino), path)
        if first != path:
            facts.append(f"same as {first!r}")
    if kind == stat.S_IFLNK:
        facts.append(repr(os.readlink(full)))
    for name in sorted(os.listxattr(full, follow_symlinks=False)):
        facts.append(f"{name}={os.getxattr(full, name, follow_symlinks=False).hex()}")
    return " ".join(facts)


def lines(root):
    root, links, paths = os.fsencode(root), {}, []
    for folder, folders, files in os.walk(root):
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in folders + files]
    return [line(root, path, links) for path in sorted(paths)]


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1])))
