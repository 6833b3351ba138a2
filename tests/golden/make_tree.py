#!/usr/bin/env python3
"""Makes the tree that golden repositories hold, the same every time.

    make_tree.py FOLDER 1|2

Version 2 changes it: a file edited in the middle, one removed, one added, the rest as it was.
"""

import os
import sys
from hashlib import shake_128

TIME = 1_700_000_000_123_456_789


def content(name, length):
    """Bytes that look random and are always the same."""
    return shake_128(name.encode()).digest(length)


def text(lines):
    return b"".join(b"line %d of a text that compresses well\n" % number for number in range(lines))


def make(root):
    write = lambda name, data: open(os.path.join(root, name), "wb").write(data)
    os.makedirs(os.path.join(root, b"sub", b"deep" * 50))
    write(b"empty", b"")
    write(b"random", content("random", 120_000))
    write(b"random-again", content("random", 120_000)[:50_000])
    write(b"text", text(8_000))
    write(b"zeros", bytes(200_000))
    write(b"removed-later", content("removed", 5000))
    write(b"not-utf-8-\xff\xfe", b"a name of any bytes")
    write(b"new\nline and 'quotes' \"here\"", b"an odd name")
    write(b"sub/" + b"deep" * 50 + b"/file", b"far down")
    write(b"set-id", b"mode 4755")
    os.chmod(os.path.join(root, b"set-id"), 0o4755)
    with open(os.path.join(root, b"sparse"), "wb") as file:
        file.truncate(8 << 20)
        file.seek(2 << 20)
        file.write(content("sparse", 10_000))
    write(b"attributes", b"has attributes")
    os.setxattr(os.path.join(root, b"attributes"), "user.larder.golden", b"\x00\xffany bytes")
    for number in range(300):
        write(b"sub/file-%03d" % number, b"small file %d" % number * (number % 7))
    os.link(os.path.join(root, b"random"), os.path.join(root, b"sub/hard link"))
    os.symlink(b"../text", os.path.join(root, b"sub/link"))
    os.symlink(b"nowhere/\xff", os.path.join(root, b"dangling"))
    os.mkfifo(os.path.join(root, b"fifo"), 0o640)
    os.mkdir(os.path.join(root, b"read-only"))
    write(b"read-only/inside", b"in a folder nobody may write to")


def change(root):
    with open(os.path.join(root, b"random"), "r+b") as file:
        file.seek(70_000)
        file.write(b"an edit in the middle")
    os.unlink(os.path.join(root, b"removed-later"))
    with open(os.path.join(root, b"added"), "wb") as file:
        file.write(content("added", 20_000))


def settle(root):
    """Fixed times and modes, from the leaves up, so that nothing changes them afterwards. What is right is left alone: a file
    with another ctime would count as changed."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in files + folders:
            path = os.path.join(folder, name)
            mode = 0o555 if name == b"read-only" else 0o755 if name in folders else 0o640
            fix(path, mode, TIME - len(os.path.relpath(path, root)) * 1_000_000_007)
    fix(root, 0o750, TIME)


def fix(path, mode, mtime):
    found = os.lstat(path)
    if not os.path.islink(path) and found.st_mode & 0o7777 not in (mode, 0o4755):
        os.chmod(path, mode)
    if found.st_mtime_ns != mtime:
        os.utime(path, ns=(TIME, mtime), follow_symlinks=False)


if __name__ == "__main__":
    folder = os.fsencode(sys.argv[1])
    make(folder) if sys.argv[2] == "1" else change(folder)
    settle(folder)
