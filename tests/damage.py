#!/usr/bin/env python3
"""Every kind of object of a repository, damaged in every way.

    damage.py LARDER [--seconds N] [--seed N] [--workers N] [--folder DIR] [--faultfs PROGRAM]

Of each damage must hold, on a repository of two series, one in each layout:
  * `check` ends with 13 and names the object, or every restore is right with 0: what nothing needs is no damage (`is_needed`);
  * a restore of each snapshot gives exactly what was backed up, or ends with 13 (with the password's key damaged: 12 or 13; of a snapshot
    whose register is gone: 1);
  * `snapshots`, and a backup of another series, end with 0 or 13; a pass with 0 or 13;
  * nothing hangs or panics;
  * where the damage is in a format's version byte, a verb may also end with 1 and name the object: a newer program may have written it;
  * when the object is put back, `check --read-data` finds nothing and every restore is right.
With --faultfs (tests/faultfs.c, and /dev/fuse) the disk answers EIO, too: to reads of an object, and to every look at it.

Each kind of object is damaged at least once, however long that takes; then the cases come kind by kind and way by way until the time is
up. The seed, which is printed, says which: without --seed each run draws others. Ends with 1 if anything was wrong.
"""
import argparse
import functools
import hashlib
import itertools
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time

ERRNO_IO = 5

# What the repository must have of, so that nothing is left out without anybody knowing.
KINDS = ["config", "data", "forgotten", "index", "index/runs", "indexed", "jobs", "jobs/done", "keys", "meta", "pins", "settings", "versions"]


def tree(folder):
    """Every entry below a folder: mode, time, content."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(above, name)
            status = os.lstat(path)
            entry = (status.st_mode, None if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns)
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    entry += (hashlib.sha256(file.read()).hexdigest(),)
            found[os.path.relpath(path, folder)] = entry
    return found


class Larder:
    """The program, for one repository and one cache."""

    def __init__(self, program, repository, cache):
        self.program = program
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LARDER_")}
        self.env.update(LARDER_PASSWORD="x", LARDER_REPOSITORY=repository, LARDER_CACHE_DIR=cache, LARDER_STATE=cache + "-state", LARDER_HOST="h")

    def run(self, *args, password="x"):
        env = dict(self.env, LARDER_PASSWORD=password, LARDER_NEW_PASSWORD="y")
        try:
            ran = subprocess.run([self.program, *args], env=env, capture_output=True, timeout=120)
        except subprocess.TimeoutExpired:
            return "HANG", "", ""
        return ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")

    def must(self, *args):
        code, out, err = self.run(*args)
        assert code == 0, (args, code, out, err)
        return out


def summary(out):
    return [json.loads(line) for line in out.splitlines() if '"summary"' in line][-1]


def build(program, work):
    """A repository with an object of every kind, and what its snapshots hold."""
    base, source = f"{work}/base", f"{work}/source"
    larder = Larder(program, base, f"{work}/cache")
    larder.must("init", "--insecure-kdf")
    larder.must("key", "add", "--insecure-kdf")
    larder.must("series", "set", "--default", "--layout", "standard")
    larder.must("series", "set", "life", "--layout", "lifecycle", "--holes", "0")
    rng = random.Random(5)
    pool = [rng.randbytes(rng.choice([300, 9000, 70000])) for _ in range(20)]
    oracle, forgotten = {}, []
    for version in range(4):
        for series in ("std", "life"):
            folder = f"{source}/{series}"
            os.makedirs(f"{folder}/sub", exist_ok=True)
            for _ in range(8):
                name = os.path.join(folder, rng.choice(["", "sub"]), "f%d" % rng.randrange(15))
                with open(name, "wb") as file:
                    file.write(rng.choice(pool) + rng.randbytes(rng.choice([0, 10, 5000])))
            big = f"{folder}/big"
            if not os.path.exists(big):
                with open(big, "wb") as file:
                    file.write(rng.randbytes(1_200_000))
            with open(big, "r+b") as file:
                file.seek(rng.randrange(1_100_000))
                file.write(rng.randbytes(60000))
            made = summary(larder.must("backup", "--json", "--series", series, folder))["snapshot_id"]
            oracle[made] = (folder, tree(folder))
            if version == 0 or (version, series) == (2, "life"):
                forgotten.append(made)
        if version == 1:
            larder.must("pin", made)
        if version in (1, 2):
            larder.must("optimize")
    for made in forgotten:
        larder.must("forget", made)
        del oracle[made]
    # The newest versions are in no index yet, nor are the marks.
    larder.must("check", "--read-data")
    return base, oracle


def kind_of(name):
    parts = name.split("/")
    if parts[0] == "index" and len(parts) > 2:
        return "index/runs"
    return parts[0] + ("/done" if parts[-1] == "done" else "")


# Reading it never ends.
ZEROS = os.makedev(1, 5)


@functools.cache
def can_make_devices(base):
    try:
        os.mknod(f"{base}.device", 0o600 | stat.S_IFCHR, ZEROS)
    except OSError:
        return False
    os.unlink(f"{base}.device")
    return True


def ways(base, name, names, rng, has_fuse):
    """Damages of one object: (what it is called, bytes or what is done)."""
    with open(f"{base}/{name}", "rb") as file:
        data = file.read()
    found = [("cut to nothing", b""), ("cut in half", data[: len(data) // 2]), ("cut by one", data[:-1])]
    found += [("zeros", bytes(len(data))), ("garbage", rng.randbytes(len(data)))]
    for at in {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(2))}:
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        found.append(("flip", bytes(flipped)))
    others = [other for other in names if kind_of(other) == kind_of(name) and other != name]
    if others:
        with open(f"{base}/{rng.choice(others)}", "rb") as file:
            found.append(("swap", file.read()))
    found += [(way, way) for way in ("gone", "folder", "link loop", "pipe")]
    # Only root makes devices, and not in every sandbox.
    found += [("device", "device")] if can_make_devices(base) else []
    if has_fuse:
        found += [(way, way) for way in ("read EIO", "look EIO")]
    return found


def is_needed(name, way, oracle):
    """Whether `check` has to name this damage although every restore may be right. Containers, runs and older indexes may be such as
    nothing needs; of marks, pins, settings, keys and leases that are gone nothing tells that they have been."""
    kind = kind_of(name)
    if kind == "versions":
        return any(made in name for made in oracle)
    if kind == "config":
        return True
    return way != "gone" and kind in ("forgotten", "pins", "settings", "jobs", "jobs/done")


class Case:
    """One worker's copy of the repository."""

    def __init__(self, args, work, number, base, oracle, mount):
        self.base, self.oracle, self.number, self.mount = base, oracle, number, mount
        self.folder, self.target = f"{work}/fs/r{number}", f"{work}/t{number}"
        self.seen = f"{mount}/r{number}" if mount else self.folder
        self.plain = Larder(args.larder, self.folder, f"{work}/c{number}")
        self.through = Larder(args.larder, self.seen, f"{work}/c{number}")
        self.control = f"{work}/control{number}"
        self.other = f"{work}/other{number}"
        os.makedirs(self.other, exist_ok=True)
        self.problems = []

    def apply(self, name, way):
        path = f"{self.folder}/{name}"
        if way in ("read EIO", "look EIO"):
            operations = ("read",) if way == "read EIO" else ("stat", "open", "read")
            lines = "".join(f"{operation} 1000 {ERRNO_IO} /r{self.number}/{name}\n" for operation in operations)
            return FAULTS.set(self.number, lines)
        os.unlink(path)
        if way == "folder":
            os.mkdir(path)
        elif way == "link loop":
            os.symlink(os.path.basename(path), path)
        elif way == "pipe":
            os.mkfifo(path)
        elif way == "device":
            os.mknod(path, 0o600 | stat.S_IFCHR, ZEROS)
        elif way != "gone":
            with open(path, "wb") as file:
                file.write(way)

    def put_back(self, name):
        FAULTS.set(self.number, "")
        path = f"{self.folder}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy2(f"{self.base}/{name}", path)

    def restores(self, larder, allowed):
        for made, (folder, wanted) in self.oracle.items():
            shutil.rmtree(self.target, ignore_errors=True)
            code, _, err = larder.run("restore", f"{made}:{folder}", "--target", self.target)
            got = tree(self.target) if os.path.isdir(self.target) else {}
            is_gone = self.called == "gone" and kind_of(self.name) == "versions" and made in self.name
            self.expect("restore", code, err, (*allowed, 1) if is_gone else allowed)
            if code == 0 and got != wanted:
                self.problems.append(("a restore is wrong and says 0", made))
            # What is there is right or named: files of the right size and other bytes would be neither.
            wrong = [path for path, entry in got.items() if entry != wanted.get(path) and path not in err]
            wrong = [path for path in wrong if len(got[path]) == 3 and not any(path in line for line in err.splitlines())]
            if code == 13 and wrong:
                self.problems.append(("restored wrongly and not named", made, wrong[:3]))

    def expect(self, what, code, err, allowed):
        if code == 1 and self.is_of_newer_format(err):
            return
        if code not in allowed or "panicked" in err or "this is a bug" in err:
            self.problems.append((what, code, err[-600:]))

    def is_of_newer_format(self, err):
        return self.called == "flip" and f"{self.name} is damaged" in err and "has format version" in err

    def run(self, name, called, way):
        self.name, self.called = name, called
        shutil.rmtree(self.folder, ignore_errors=True)
        # The machine remembers nothing of the copy before, which was newer at its end.
        shutil.rmtree(self.plain.env["LARDER_STATE"], ignore_errors=True)
        subprocess.run(["cp", "-a", self.base, self.folder], check=True)
        larder = self.through if called.endswith("EIO") else self.plain
        self.apply(name, way)
        kind = kind_of(name)
        # A damaged key is that of the password, or that of the other one.
        shut = (12, 13) if kind == "keys" else ()
        code, out, err = larder.run("check", *(["--read-data"] if kind in ("data", "meta") else []))
        self.expect("check", code, err, (0, 13, *shut))
        is_named = (code == 13 or self.is_of_newer_format(err)) and name in out + err
        if is_needed(name, called, self.oracle) and code not in shut and not is_named:
            self.problems.append(("not named by check", code, (out + err)[-600:]))
        self.restores(larder, (0, 13, *shut) if is_named or code in shut else (0,))
        with open(f"{self.other}/file", "wb") as file:
            file.write(os.urandom(2000))
        verbs = [("snapshots",), ("backup", "--series", "other", self.other)]
        # A pass may rightly delete what a forgotten version had: putting its register back would bring it back without.
        if kind != "versions" or is_needed(name, called, self.oracle):
            verbs.append(("optimize",))
        for verb in verbs:
            code, _, err = larder.run(*verb)
            self.expect(verb[0], code, err, (0, 13, *shut))
        if kind == "config":
            code, _, err = larder.run("repair", "config")
            self.expect("repair config", code, err, (0,) if called != "look EIO" and called != "read EIO" else (0, 13, 15))
        self.put_back(name)
        self.called = "put back"
        code, out, err = self.plain.run("check", "--read-data")
        # The pass above could not read it, and learns of it when it is made again.
        if code == 13 and kind in ("data", "meta", "versions"):
            self.plain.run("repair", "index")
            code, out, err = self.plain.run("check", "--read-data")
        self.expect("check after putting it back", code, out + err, (0,))
        self.restores(self.plain, (0,))


class Faults:
    """The control file of the failing file system, shared by all workers."""

    def __init__(self):
        self.path, self.lines, self.lock = None, {}, threading.Lock()

    def set(self, number, lines):
        if not self.path:
            return
        with self.lock:
            self.lines[number] = lines
            with open(self.path + ".new", "w") as file:
                file.write("".join(self.lines.values()))
            os.rename(self.path + ".new", self.path)


FAULTS = Faults()


def mounted(args, work):
    """The failing file system over the workers' folders, if there is one."""
    os.makedirs(f"{work}/fs")
    if not args.faultfs or not os.path.exists("/dev/fuse"):
        return None, None
    os.makedirs(f"{work}/mnt")
    FAULTS.path = f"{work}/faults"
    open(FAULTS.path, "w").close()
    env = dict(os.environ, BASE=f"{work}/fs", CTL=FAULTS.path)
    served = subprocess.Popen([args.faultfs, "-f", f"{work}/mnt"], env=env, stdin=subprocess.DEVNULL)
    for _ in range(50):
        if os.path.ismount(f"{work}/mnt"):
            return f"{work}/mnt", served
        if served.poll() is not None:
            break
        time.sleep(0.1)
    served.kill()
    FAULTS.path = None
    return None, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("larder")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--faultfs")
    args = parser.parse_args()
    work = tempfile.mkdtemp(dir=args.folder)
    mount, served = mounted(args, work)
    try:
        return sweep(args, work, mount)
    finally:
        if served:
            subprocess.run(["umount", "-l", mount], check=False)
            served.terminate()
            served.wait()
        shutil.rmtree(work, ignore_errors=True)


def shuffled(rng, items):
    rng.shuffle(items)
    return items


def in_turn(piles):
    """One of each pile, then the next one of each, until all are empty."""
    return [item for turn in itertools.zip_longest(*piles) for item in turn if item is not None]


def sweep(args, work, mount):
    rng = random.Random(args.seed)
    base, oracle = build(args.larder, work)
    names = sorted(os.path.relpath(os.path.join(at, name), base) for at, _, files in os.walk(base) for name in files)
    piles = {}
    for name in names:
        for called, way in ways(base, name, names, rng, mount is not None):
            piles.setdefault((kind_of(name), called), []).append((name, called, way))
    for pile in piles.values():
        rng.shuffle(pile)
    kinds = sorted({kind for kind, _ in piles})
    missing = [kind for kind in KINDS if kind not in kinds]
    assert not missing, f"the repository has no {missing}"
    print(f"seed {args.seed}: {len(names)} objects of {len(kinds)} kinds", flush=True)
    # One way of each kind, then the next way of each.
    order = in_turn([in_turn(shuffled(rng, [piles[pile] for pile in piles if pile[0] == kind])) for kind in kinds])
    waiting, lock, end = enumerate(order), threading.Lock(), time.time() + args.seconds
    done, wrong = [], []

    def work_off(number):
        case = Case(args, work, number, base, oracle, mount)
        while True:
            with lock:
                at, item = next(waiting, (0, None))
            if item is None or (at >= len(kinds) and time.time() > end):
                return
            name, called, _ = item
            case.problems = []
            try:
                case.run(*item)
            except Exception as error:  # the script's own fault, and to be seen
                case.problems.append(("script", repr(error)))
            with lock:
                done.append((kind_of(name), called))
                for problem in case.problems:
                    wrong.append((name, called, *problem))
                    print("WRONG", name, called, *problem, flush=True)

    threads = [threading.Thread(target=work_off, args=(number,)) for number in range(args.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    missed = sorted(set(piles) - set(done))
    ways_done = f"{len(set(done))} of {len(piles)} ways of {len(kinds)} kinds of objects"
    print(f"{len(done)} of {len(order)} damages, {ways_done}, {'with' if mount else 'without'} EIO: {len(wrong)} wrong")
    if missed:
        print("out of time for", ", ".join(f"{kind} {called}" for kind, called in missed[:8]), "…")
    return 1 if wrong else 0


sys.exit(main())
