"""Compares a restored tree with its source, by an own walk that shares no code with any tool.

Content, type, size and link target must be equal; everything else that differs (mode, owner, time, attributes) is counted by
kind and reported, for not every tool brings all of it back. The two top folders themselves are not compared.
"""

import os
import stat
from collections import Counter

BLOCK = 4 << 20


def entries(top):
    """Every entry below `top`, by relative path, without following links."""
    found = {}
    pending = [""]
    while pending:
        inner = pending.pop()
        with os.scandir(os.path.join(top, inner)) as listing:
            for entry in listing:
                path = os.path.join(inner, entry.name)
                found[path] = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
    return found


def same_content(left, right):
    with open(left, "rb", buffering=0) as one, open(right, "rb", buffering=0) as two:
        while True:
            a, b = one.read(BLOCK), two.read(BLOCK)
            if a != b:
                return False
            if not a:
                return True


def compare(source, restored):
    """Returns (serious, lesser): a list of serious differences, and counts of lesser ones by kind."""
    want, have = entries(source), entries(restored)
    serious = [f"missing: {path}" for path in sorted(want.keys() - have.keys())]
    serious += [f"not in the source: {path}" for path in sorted(have.keys() - want.keys())]
    lesser = Counter()
    for path in sorted(want.keys() & have.keys()):
        one, two = want[path], have[path]
        left, right = os.path.join(source, path), os.path.join(restored, path)
        if stat.S_IFMT(one.st_mode) != stat.S_IFMT(two.st_mode):
            serious.append(f"another type: {path}")
            continue
        if stat.S_ISREG(one.st_mode) and (one.st_size != two.st_size or not same_content(left, right)):
            serious.append(f"another content: {path}")
        if stat.S_ISLNK(one.st_mode) and os.readlink(left) != os.readlink(right):
            serious.append(f"another target: {path}")
        kind = "folder" if stat.S_ISDIR(one.st_mode) else "entry"
        lesser[f"{kind} mode"] += stat.S_IMODE(one.st_mode) != stat.S_IMODE(two.st_mode)
        lesser[f"{kind} time"] += one.st_mtime_ns != two.st_mtime_ns
        lesser[f"{kind} owner"] += (one.st_uid, one.st_gid) != (two.st_uid, two.st_gid)
        lesser[f"{kind} attributes"] += attributes(left) != attributes(right)
    return serious, {key: count for key, count in lesser.items() if count}


def attributes(path):
    try:
        return {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
    except OSError:
        return {}
