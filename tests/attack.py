#!/usr/bin/env python3
"""Real processes against each other on one small repository: backups, forgetting, passes, conversions of layouts, repairs of the index
and of snapshots, restores and checks, any of them frozen, killed or interrupted at any moment, and with wrong clocks. Some rounds aim
at one slow backup: its base is forgotten, the index is rebuilt and passes run before it commits. In some rounds the disk fails. After
each round every snapshot that nobody forgot is listed and restores to the tree it was made of, by an independent comparison (`walk.py`).

    tests/attack.py LARDER [--seconds N] [--seed N] [--folder FOLDER] [--shift LIBRARY] [--faultfs PROGRAM]

LIBRARY shifts the clock of a process by SHIFT_SECONDS (`storm.sh` builds it). PROGRAM is `faultfs.c`: with it the repository lies on a file
system that fails where it is told. While it does, a job may fail, but it may not hang, panic, or say that it saved what it did not.
Even seeds have repairs. After one, or after a disk that failed, a pass may miss what only a job beside it names: when all jobs are over, one that lists
everything must miss nothing, and `check --read-data` must find nothing.

The repository is a new folder below FOLDER, or what LARDER_REPOSITORY says (with `init` done). A seed repeats what is tried, not its timing.
"""

import argparse, errno, json, os, random, shutil, signal, subprocess, sys, tempfile, time

import walk

SERIES = {"one": "standard", "two": "lifecycle"}
# Exit codes of a job whom nobody touched; whoever was taken for dead may be fenced (11) or miss what it reads.
FINE = {0, 11}
# And of one on a disk that fails.
FAULTY = {1, 3, 10, 12, 13, 15, 16}
# How passes and rebuilds say that something is missing.
MISSING = ["that snapshots need", "cannot be read, its chunks are not in the index"]


class Attack:
    def __init__(self, arguments):
        self.larder, self.rng = os.path.abspath(arguments.larder), random.Random(arguments.seed)
        self.work = tempfile.mkdtemp(dir=arguments.folder)
        self.env = dict(os.environ, LARDER_PASSWORD="secret", LARDER_CACHE_DIR=os.path.join(self.work, "cache"),
                        LARDER_STATE=os.path.join(self.work, "state"))
        self.log = open(os.path.join(self.work, "log"), "w")
        self.shift = arguments.shift and os.path.abspath(arguments.shift)
        self.served = None
        place = arguments.faultfs and self.mount(arguments.faultfs) or self.work
        self.env.setdefault("LARDER_REPOSITORY", os.path.join(place, "repository"))
        # Of each tag the tree and what was in it; ids that were committed; ids that somebody may have begun to forget.
        self.trees, self.sums, self.committed, self.maybe_forgotten = {}, {}, set(), set()
        # Of each series of slow backups the newest content.
        self.aimed = {}
        self.number, self.counts, self.claimed = 0, {}, False
        # An index that was rebuilt keeps copies for whose sake something may have been retired before: then nobody can say what is
        # left over.
        self.repairs = arguments.seed % 2 == 0
        # After a disk that failed a pass may rebuild the index by itself.
        self.may_claim = self.repairs or self.served is not None

    def mount(self, faultfs):
        """A file system for the repository that fails where its control file says so."""
        under, above, self.faults = (os.path.join(self.work, name) for name in ("under", "above", "faults"))
        os.mkdir(under), os.mkdir(above), self.fail_disk([])
        env = dict(os.environ, BASE=under, CTL=self.faults)
        self.served = subprocess.Popen([os.path.abspath(faultfs), "-f", above], env=env, stdin=subprocess.DEVNULL, stderr=self.log)
        self.above = above
        for _ in range(100):
            if os.path.ismount(above):
                return above
            if self.served.poll() is not None:
                break
            time.sleep(0.1)
        # Not everybody may mount.
        print("the failing file system cannot be mounted; the disk is healthy")
        self.served.kill()
        self.served = None
        return None

    def unmount(self):
        if self.served:
            subprocess.run(["umount", "-l", self.above], check=False)
            self.served.terminate()
            self.served.wait()

    def fail_disk(self, rules):
        """What fails from now on: operations, each with how many of a thousand, and an error."""
        with open(self.faults + ".new", "w") as out:
            out.writelines(f"{operation} {permille} {error}\n" for operation, permille, error in rules)
        os.rename(self.faults + ".new", self.faults)

    def some_faults(self):
        operations = ["write", "fsync", "link", "open", "create", "read", "fsyncdir", "stat", "unlink", "mkdir", "opendir", "readdir"]
        errors = [errno.EIO, errno.EIO, errno.ENOSPC, errno.ESTALE]
        count = self.rng.randrange(1, 4)
        return [(self.rng.choice(operations), self.rng.choice([1, 5, 20, 100]), self.rng.choice(errors)) for _ in range(count)]

    def run(self, *args, codes=(0,)):
        done = subprocess.run([self.larder, *args], env=self.env, capture_output=True, text=True)
        if done.returncode not in codes:
            self.fail(f"{' '.join(args)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def fail(self, why):
        self.log.flush()
        with open(self.log.name) as log:
            done = log.readlines()[-40:]
        print(f"{''.join(done)}FAILED: {why}\nin {self.work}", file=sys.stderr)
        sys.exit(1)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def edit(self, tree):
        """The next content of a tree: some files change, come and go. What left may come back."""
        os.makedirs(tree, exist_ok=True)
        for _ in range(self.rng.randrange(1, 6)):
            path = os.path.join(tree, f"f{self.rng.randrange(8)}")
            kind = self.rng.randrange(6)
            if kind == 0 and os.path.exists(path):
                os.remove(path)
            elif kind < 3 or not os.path.exists(path):
                # One of some contents that both series have.
                with open(path, "wb") as out:
                    out.write(random.Random(self.rng.randrange(12)).randbytes(self.rng.choice([1000, 200_000, 900_000])))
            else:
                with open(path, "r+b") as out:
                    out.seek(self.rng.randrange(os.path.getsize(path) + 1))
                    out.write(self.rng.randbytes(self.rng.choice([10, 5000, 100_000])))
        return tree

    def clock(self, kind):
        """A clock for a process. What makes snapshots is never ahead: one from the future would be the newest for long."""
        if not self.shift or self.rng.random() < 0.5:
            return self.env
        shifts = [-600, -86400, -31536000] + ([] if kind in ("backup", "repair") else [600, 86400, 31536000])
        return dict(self.env, LD_PRELOAD=self.shift, SHIFT_SECONDS=str(self.rng.choice(shifts)))

    def command(self, kind, name, busy=None):
        """A job that something may happen to. A tree of which a backup is running must not change; each series has two, so that its
        backups run beside one another too."""
        if kind == "backup":
            trees = [os.path.join(self.work, "source", name + number) for number in "12"]
            trees = [tree for tree in trees if tree not in busy]
            if not trees:
                return None
            self.number += 1
            tag, tree = f"t{self.number}", self.rng.choice(trees)
            busy.add(tree)
            self.edit(tree)
            self.trees[tag], self.sums[tag] = tree, walk.tree(tree)
            return ["backup", "--json", "--series", name, "--tag", tag, tree]
        if kind == "forget":
            snapshots = [snapshot for snapshot in self.snapshots() if snapshot["series"] == name]
            if len(snapshots) < 4:
                return None
            chosen = self.rng.sample(snapshots, self.rng.randrange(1, len(snapshots) - 2))
            self.maybe_forgotten.update(snapshot["id"] for snapshot in chosen)
            prune = ["--prune"] if self.rng.random() < 0.3 else []
            return ["forget", *prune, *(snapshot["id"] for snapshot in chosen)]
        if kind == "optimize":
            more = [[], [], ["--list-all"], ["--dead-after", "1s"], ["--task", "exact"], ["--task", "arrange"], ["--task", "defragment"],
                    ["--max-unused", "0"], ["--max-duration", "1s"], ["--memory", "16M"]]
            return ["optimize", *self.rng.choice(more)]
        if kind == "convert":
            return ["series", "convert", name, "--layout", self.rng.choice(["standard", "lifecycle"])]
        if kind == "repair":
            return ["repair", *self.rng.choice([["index"], ["index"], ["snapshots", "--json"]])]
        if kind == "check":
            return ["check", "--read-data", *self.rng.choice([[], ["--no-index"]])]
        if kind == "set":
            return ["series", "set", name, "--holes", str(self.rng.choice([0, 5, 20, 60])), "--arrange-every", str(self.rng.choice([1, 2, 4]))]
        target = os.path.join(self.work, f"restored-{self.rng.randrange(1 << 30)}")
        return ["restore", "latest", "--series", name, "--target", target]

    def snapshots(self):
        return json.loads(self.run("snapshots", "--no-free", "--json"))

    def start(self, args):
        out, err = (tempfile.TemporaryFile(dir=self.work) for _ in range(2))
        # A disk that fails again and again is waited for that long.
        more = ["--timeout", "20s"] if self.served else []
        return subprocess.Popen([self.larder, *more, *args], env=self.clock(args[0]), stdout=out, stderr=err), args, out, err

    def round(self):
        kinds = ["backup"] * 4 + ["forget"] * 2 + ["optimize"] * 4 + ["convert"] * 2 + ["check", "restore", "set"]
        kinds += ["repair"] * self.repairs
        jobs, busy = [], set()
        faults = self.some_faults() if self.served and self.rng.random() < 0.4 else []
        for _ in range(self.rng.randrange(2, 5)):
            kind, name = self.rng.choice(kinds), self.rng.choice(list(SERIES))
            # Of a disk that fails everything looks damaged; what is left of it is then saved, and that is nobody's snapshot.
            if kind == "repair" and faults:
                continue
            args = self.command(kind, name, busy)
            if args:
                jobs.append(self.start(args))
                time.sleep(self.rng.random() * self.rng.choice([0.02, 0.3]))
        if faults:
            self.count("the disk failed")
            print("faults", faults, file=self.log, flush=True)
            self.fail_disk(faults)
        touched = set()
        for _ in range(self.rng.randrange(0, 5)):
            if not jobs:
                break
            at = self.rng.randrange(len(jobs))
            job, what = jobs[at][0], self.rng.choice(["STOP", "STOP", "KILL", "INT"])
            if job.poll() is not None:
                continue
            self.count(f"{jobs[at][1][0]} {what}")
            job.send_signal(getattr(signal, f"SIG{what}"))
            touched.update([at] if what != "STOP" else [])
            if what == "STOP":
                kinds = ["optimize", "optimize", *["forget", *["repair"] * self.repairs] * (not faults)]
                args = self.command(self.rng.choice(kinds), self.rng.choice(list(SERIES)))
                if args:
                    jobs.append(self.start(args))
                    try:
                        jobs[-1][0].wait(timeout=self.rng.random() * 3)
                    except subprocess.TimeoutExpired:
                        pass
                job.send_signal(signal.SIGCONT)
            time.sleep(self.rng.random() * 0.4)
        impatient = any("--dead-after" in job[1] for job in jobs)
        for at, (job, args, out, err) in enumerate(jobs):
            try:
                code = job.wait(timeout=120)
            except subprocess.TimeoutExpired:
                job.kill()
                self.fail(f"{args} hangs")
            out.seek(0), err.seek(0)
            said, complained = out.read().decode(), err.read().decode()
            self.count(f"{args[0]} ended with {code}")
            print(args, code, complained, said if code == 13 else "", file=self.log, flush=True)
            fine = FINE | ({-signal.SIGKILL, -signal.SIGINT, 130} if at in touched else set())
            if args[0] == "restore":
                # There may be no snapshot yet; what is read by somebody who was taken for dead may go.
                fine = fine | {1} | ({13} if impatient else set())
            elif args[0] == "forget":
                # Somebody else was faster.
                fine = fine | {1}
            elif args[0] == "check" and impatient:
                fine = fine | {13, 1}
            elif args[:2] == ["series", "convert"]:
                fine = fine | {1, 3}
            claims = any(words in complained for words in MISSING)
            if claims and self.may_claim and not faults:
                # What `look` then refutes.
                fine, self.claimed = fine | {13}, True
                self.count(f"{args[0]} missed what only a job names")
            if args[:2] == ["repair", "snapshots"] and code in (0, 13):
                fine = fine | {13}
                self.salvaged(said)
            if faults:
                fine = fine | FAULTY
            if code not in fine or "panicked" in complained or "this is a bug" in complained:
                self.fail(f"{args} ended with {code}: {complained}{said}")
            if claims and not self.may_claim and not faults:
                self.fail(f"{args} misses what nobody lost: {complained}")
            if code == 0 and args[0] == "backup":
                summary = [line for line in map(json.loads, said.splitlines()) if line.get("message_type") == "summary"][-1]
                if summary.get("snapshot_id"):
                    self.committed.add(summary["snapshot_id"])
        if faults:
            self.fail_disk([])
        for name in os.listdir(self.work):
            if name.startswith("restored-"):
                shutil.rmtree(os.path.join(self.work, name))

    def salvaged(self, said):
        """No snapshot that nobody forgot is damaged. One that goes may be found in pieces."""
        summaries = [line for line in map(json.loads, said.splitlines()) if line.get("message_type") == "summary"]
        for found in summaries[-1]["snapshots"] if summaries else []:
            if found["snapshot_id"] not in self.maybe_forgotten:
                self.fail(f"repair finds damage where there is none: {found}")

    def aim(self):
        """A slow backup, whose base goes while passes run and the index is rebuilt: what it commits is whole."""
        name = self.rng.choice(list(SERIES))
        series = f"slow {name}"
        content = self.rng.randbytes(400_000) + random.Random(3).randbytes(1_000_000)
        base = self.aimed.get(series)
        if base is None or self.rng.random() < 0.3:
            self.feed(series, name, [content])
            self.aimed[series] = base = content
        content = base[: self.rng.randrange(200_000, len(base))] + self.rng.randbytes(self.rng.choice([10, 300_000]))
        others = []

        def meanwhile():
            held = [snapshot["id"] for snapshot in self.snapshots() if snapshot["series"] == series]
            self.maybe_forgotten.update(held)
            steps = [["optimize", "--max-unused", "0"], ["optimize", "--task", "exact"], ["optimize", "--list-all"]]
            steps = self.rng.sample(steps, 2)
            steps.insert(self.rng.randrange(3), ["forget", *held])
            if self.repairs:
                steps.insert(self.rng.randrange(4), ["repair", "index"])
            for step in steps:
                if len(step) > 1:
                    # Beside the slow backup, see above.
                    self.run(*step, codes=(0, 1, 11, 13) if self.may_claim else (0, 1, 11))
                    self.claimed |= self.may_claim
                    others.append(step[0])

        self.feed(series, name, [content[:150_000], meanwhile, content[150_000:]])
        self.aimed[series] = content
        dumped = subprocess.run([self.larder, "dump", "latest:/stdin", "--series", series], env=self.env, capture_output=True)
        if dumped.returncode or dumped.stdout != content:
            self.fail(f"a slow backup of {series} beside {others} does not restore: {dumped.stderr.decode()[-1000:]}")
        self.count("aimed at a slow backup")

    def feed(self, series, name, parts):
        """A backup of a stream, given part by part; what is no part is done in between."""
        command = [self.larder, "-q", "backup", "--stdin", "--series", series, "--layout", SERIES[name]]
        job = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for part in parts:
            if callable(part):
                job.stdin.flush()
                time.sleep(0.3)
                part()
            else:
                job.stdin.write(part)
        complained = job.communicate()[1].decode()
        if job.returncode:
            self.fail(f"a slow backup of {series} ended with {job.returncode}: {complained}")

    def look(self):
        """Whether everything that should be there is, and restores."""
        if self.claimed:
            time.sleep(1.1)
            self.run("optimize", "--list-all", "--dead-after", "1s")
            self.run("check", "--read-data")
            self.claimed = False
        listed = {snapshot["id"]: snapshot for snapshot in self.snapshots()}
        for lost in self.committed - self.maybe_forgotten - set(listed):
            self.fail(f"snapshot {lost} was committed, nobody forgot it, and it is gone")
        self.committed.update(listed)
        for id, snapshot in listed.items():
            # What was saved of one that was about to go is not all of it.
            if not snapshot.get("tags") or "repaired" in snapshot["tags"]:
                continue
            target = os.path.join(self.work, "looked")
            tag = snapshot["tags"][0]
            self.run("restore", f"{id}:{self.trees[tag]}", "--target", target)
            different = walk.differences(self.sums[tag], walk.tree(target))
            if different:
                self.fail(f"snapshot {id} ({tag} of {snapshot['series']}) restores to something else: {different[:5]}")
            shutil.rmtree(target)
            self.count("restored")

    def end(self):
        """When all is quiet, nothing is left over and everything agrees. In the layout lifecycle what a version between others has no use for
        may stay for its category, so that is retired first."""
        for name in SERIES:
            # There may be no snapshot of it.
            self.run("series", "convert", name, "--layout", "standard", codes=(0, 1))
        # One pass fences who died, the next collects what they left; on a disk that failed it may take more of them.
        for passes in range(1, 5):
            time.sleep(1.1)
            self.run("optimize", "--dead-after", "1s", "--list-all")
            checked = [json.loads(line) for line in self.run("check", "--read-data", "--json").splitlines()]
            unused = [line for line in checked if line.get("message_type") == "summary"][-1]["unused_containers"]
            if passes >= 2 and (not unused or self.repairs or not self.served):
                break
        self.counts["passes until all was collected"] = passes
        self.run("repair", "index", "--dry-run")
        if unused and not self.repairs:
            self.fail(f"{unused} containers are left over")
        self.look()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("larder")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder")
    parser.add_argument("--shift")
    parser.add_argument("--faultfs")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    attack = Attack(arguments)
    try:
        play(attack, arguments)
    finally:
        attack.unmount()
    shutil.rmtree(attack.work)


def play(attack, arguments):
    if "LARDER_REPOSITORY" not in os.environ:
        attack.run("init", "--insecure-kdf")
    for name, layout in SERIES.items():
        attack.run("series", "set", name, "--layout", layout, "--holes", "5")
    if not attack.repairs:
        # Whoever is killed before the first index, but after the mark that there is to be one, leaves it to others to rebuild it.
        attack.run(*attack.command("backup", "one", set()))
        attack.run("optimize")
    begin, rounds = time.time(), 0
    while time.time() < begin + arguments.seconds:
        attack.round()
        if rounds % 2:
            attack.aim()
        attack.look()
        rounds += 1
    attack.end()
    for what, count in sorted(attack.counts.items()):
        print(f"{count:6} {what}")
    print(f"attack: {rounds} rounds, everything whole")


main()
