"""What a tree holds, found out without anything of this project: contents, types, owners, modes, times, extended attributes, links.

    tests/walk.py A B    prints how two trees differ, and ends with 1 if they do
"""

import hashlib, os, stat, sys


def attributes(path):
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in sorted(names)}
    except OSError:
        return {}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree(root):
    """Everything below a folder by its path; the folder itself is left out."""
    root, found, names = os.fsencode(root), {}, {}
    folders = [b""]
    while folders:
        folder = folders.pop()
        for name in os.listdir(os.path.join(root, folder)):
            path = os.path.join(folder, name)
            at = os.path.join(root, path)
            seen = os.lstat(at)
            entry = {"mode": oct(seen.st_mode), "owner": (seen.st_uid, seen.st_gid), "xattrs": attributes(at), "mtime": seen.st_mtime_ns}
            if stat.S_ISDIR(seen.st_mode):
                folders.append(path)
            elif seen.st_nlink > 1:
                names.setdefault((seen.st_dev, seen.st_ino), []).append(path)
            if stat.S_ISREG(seen.st_mode):
                entry["sha256"] = digest(at)
            elif stat.S_ISLNK(seen.st_mode):
                entry["target"] = os.readlink(at)
            found[path] = entry
    for group in names.values():
        for path in group if len(group) > 1 else []:
            found[path]["linked to"] = min(group)
    return found


def differences(a, b):
    """How two trees differ, in words."""
    words = []
    for path in sorted(a.keys() | b.keys()):
        here, there = a.get(path), b.get(path)
        if here is None or there is None:
            words.append(f"{os.fsdecode(path)!r} is only in the {'second' if here is None else 'first'}")
        elif here != there:
            parts = [key for key in here.keys() | there.keys() if here.get(key) != there.get(key)]
            words.append(f"{os.fsdecode(path)!r} differs in {', '.join(sorted(parts))}")
    return words


if __name__ == "__main__":
    different = differences(tree(sys.argv[1]), tree(sys.argv[2]))
    print("\n".join(different[:40]))
    sys.exit(bool(different))
