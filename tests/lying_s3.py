#!/usr/bin/env python3
"""Runs the program against an S3 server that lies, fails and falls silent, and looks at what became of the snapshots.

    tests/lying_s3.py LARDER [NAME...]

Each scenario has a server and a repository of its own (`faulty_s3.py`). At the end of each the server is healthy, every snapshot that
a backup reported must restore byte for byte, and `check --read-data` and a pass must find nothing. Exits with 1 if one did not.
"""

import concurrent.futures
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import fleet_on_failing_store
import fleet_scene
from faulty_s3 import Server

LARDER, PICKED = sys.argv[1], sys.argv[2:]

# What is no listing and comes with 200.
ERROR = "<?xml version='1.0'?><Error><Code>InternalError</Code><Message>Please try again.</Message></Error>"
PORTAL = "<html><head><title>Sign in</title></head><body></body></html>"

SCENARIOS = {}


def scenario(*arguments):
    """Registers a scenario, once for each of the arguments."""
    def register(function):
        for argument in arguments or [()]:
            given = argument if isinstance(argument, tuple) else (argument,)
            SCENARIOS["-".join([function.__name__, *(str(one)[:24] for one in given)]).replace(" ", "_")] = (function, given)
        return function
    return register


def lie(prefix, body=ERROR, **more):
    """A rule: listings of this prefix are answered with something else."""
    return {"do": "raw", "code": 200, "verb": ["LIST"], "key": f"/{prefix}", "body": body, **more}


class Failed(Exception):
    """A scenario found something wrong."""


class Scene:
    """A server, a repository, a source that changes, and what is known of its snapshots."""

    def __init__(self, folder, seed=1):
        self.server = Server().start()
        self.bucket = self.server.bucket
        self.folder, self.source = folder, os.path.join(folder, "source")
        self.repository = f"s3:http://127.0.0.1:{self.server.server_port}/bucket/repository"
        self.random = random.Random(seed)
        # Of each snapshot what must come back, and of which folder it was made.
        self.saved, self.sources = {}, {}
        for number in range(24):
            self.write(number)
        os.environ.pop("LARDER_REPOSITORY", None)

    def write(self, number):
        path = os.path.join(self.source, f"d{number % 4}", f"f{number}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(self.random.randbytes(self.random.randrange(1, 60000)))

    def begin(self, *arguments, timeout="6s", cache=None):
        """Starts a verb; `cache` names the folder of a machine that keeps copies of metadata."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
            "LARDER_PASSWORD": "secret", "LARDER_CACHE_DIR": os.path.join(self.folder, "cache"), "LARDER_STATE": os.path.join(self.folder, "state"), "HOME": self.folder,
        }
        command = [LARDER, *arguments, "-r", self.repository]
        command += ["--cache-dir", os.path.join(self.folder, cache)] if cache else ["--no-cache"]
        if timeout:
            command += ["--timeout", timeout]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments, code=0, says="", within=60, timeout="6s", cache=None):
        """Runs a verb that must end with `code` (or one of them) and say `says`."""
        began = time.time()
        process = self.begin(*arguments, timeout=timeout, cache=cache)
        try:
            out, error = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
            raise Failed(f"{' '.join(arguments)}: not ended after {within} s: {error}") from None
        codes = code if isinstance(code, tuple) else (code,)
        if process.returncode not in codes or says.lower() not in (out + error).lower():
            took = time.time() - began
            raise Failed(f"{' '.join(arguments)}: {process.returncode} after {took:.1f} s, {code} {says!r} wanted: {error}{out[-600:]}")
        return out

    def init(self, snapshots=0, optimize=False):
        self.run("init", "--insecure-kdf")
        for _ in range(snapshots):
            self.backup()
        if optimize:
            self.run("optimize")
        return self

    def digest(self, folder):
        found = {}
        for place, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
        return found

    def change(self):
        for number in self.random.sample(range(24), 4):
            self.write(number)

    def backup(self, *arguments, **how):
        """Changes the source and saves it; remembers what must come back."""
        self.change()
        self.note(self.run("backup", self.source, "--json", *arguments, **how))

    def note(self, out):
        for line in out.splitlines():
            summary = json.loads(line)
            if summary.get("message_type") == "summary":
                self.saved[summary["snapshot_id"]] = self.digest(self.source)
                self.sources[summary["snapshot_id"]] = self.source

    def client(self, number):
        """Another machine on the same repository, with a source of its own."""
        other = Scene.__new__(Scene)
        other.__dict__.update(self.__dict__, source=f"{self.source}{number}", random=random.Random(number))
        for file in range(24):
            other.write(file)
        return other

    def kept(self, *arguments, **how):
        """Runs a verb after which every container must still be there."""
        before = {key for key in self.bucket.keys() if "/data/" in key or "/meta/" in key}
        self.run(*arguments, **how)
        gone = before - set(self.bucket.keys())
        if gone:
            raise Failed(f"{' '.join(arguments)} deleted {sorted(gone)}")

    def restored(self, snapshot, **how):
        target = tempfile.mkdtemp(dir=self.folder)
        self.run("restore", f"{snapshot}:{self.sources[snapshot]}", "--target", target, **how)
        return self.digest(target)

    def end(self):
        """The server is healthy again: everything that was saved is there."""
        self.bucket.heal()
        for snapshot, content in self.saved.items():
            if self.restored(snapshot) != content:
                raise Failed(f"snapshot {snapshot} came back with other content")
        self.run("optimize")
        self.run("check", "--read-data")
        for snapshot, content in self.saved.items():
            if self.restored(snapshot) != content:
                raise Failed(f"snapshot {snapshot} came back with other content after a pass")


# Batches of several processes.


@scenario()
def fleet_batches_on_a_store_that_fails(scene):
    """This takes longest, so it begins first."""
    scene.init()
    try:
        fleet_on_failing_store.play(LARDER, scene.folder, scene.repository, scene.bucket)
    except fleet_scene.Failed as failure:
        raise Failed(str(failure)) from None


# Listings that are none.


@scenario(("data", ERROR), ("data", PORTAL), ("versions", ERROR), ("forgotten", ERROR))
def repair_index_meets_no_listing(scene, prefix, body):
    """The shortest loss of all: the rebuilt index knew no containers, and the next pass deleted them."""
    scene.init(3, optimize=True)
    scene.bucket.control([lie(prefix, body)])
    scene.kept("repair", "index", code=15, says="no listing")
    scene.bucket.control([lie(prefix, body, n=1)])
    scene.kept("repair", "index")
    scene.bucket.heal()
    scene.kept("optimize")


@scenario(*range(4))
def first_pass_meets_no_listing(scene, number):
    """Two snapshots, no index yet, and one of the listings of versions is none."""
    scene.init(2)
    scene.bucket.control([lie("versions", skip=number, n=1)])
    scene.kept("optimize")
    scene.bucket.control([lie("versions")])
    scene.kept("optimize", code=15, says="no listing")


@scenario()
def pass_beside_backup_meets_no_listing(scene):
    """A backup is about to commit while a pass sees no leases."""
    scene.init(2, optimize=True)
    scene.bucket.control([{"do": "delay", "s": 6, "verb": ["PUT"], "key": "/versions/", "n": 1}])
    scene.change()
    backup = scene.begin("backup", scene.source, "--json", timeout="60s")
    time.sleep(2)
    scene.bucket.control([lie("jobs")])
    scene.kept("optimize", "--list-all", code=15, says="no listing", timeout="3s")
    scene.bucket.heal()
    out, error = backup.communicate()
    if backup.returncode != 0:
        raise Failed(f"the backup ended with {backup.returncode}: {error}")
    scene.note(out)


@scenario(4, 6, 8, 10)
def second_page_is_no_listing(scene, number):
    """Pages of three, and one of them is an error document."""
    scene.init(4, optimize=True)
    scene.backup()
    scene.bucket.control([lie("versions", skip=number, n=1)], page=3)
    scene.kept("optimize")


@scenario()
def old_listing(scene):
    """ListObjects version 1: a page without a token stood for all."""
    scene.init(2, optimize=True)
    scene.backup()
    scene.backup()
    scene.bucket.control(page=3, page_key="/versions", version=1)
    scene.run("snapshots", code=15, says="ListObjectsV2", within=20, timeout=None)
    scene.kept("optimize", code=15, says="ListObjectsV2")
    scene.run("validate-store", code=(1, 13, 15))


@scenario("cut", "short")
def listing_ends_early(scene, how):
    scene.init(2, optimize=True)
    scene.bucket.control([{"do": how, "verb": ["LIST"], "p": 0.3}])
    scene.kept("optimize", timeout="30s")
    scene.backup(timeout="30s")


# Answers that are lost.


@scenario("lost", "late", "lost_status")
def every_kind_of_create_loses_its_answer(scene, how):
    kinds = ["jobs/[^/]*/0$", "jobs/[^/]*/done$", "data/", "meta/", "versions/", r"index/\d+$", "index/runs", "indexed",
             "forgotten/", "pins/", "settings/"]
    more = {"lost": {}, "late": {"s": 0.5}, "lost_status": {"code": 503, "error": "SlowDown"}}[how]
    scene.init(2, optimize=True)
    scene.bucket.control([{"do": how, "verb": ["PUT"], "key": "/" + kind, "n": 1, **more} for kind in kinds])
    scene.backup(timeout="40s")
    scene.run("pin", "latest", timeout="40s")
    scene.run("unpin", "latest", timeout="40s")
    scene.run("series", "set", "--default", "--holes", "10", timeout="40s")
    forgotten = next(iter(scene.saved))
    scene.run("forget", forgotten, timeout="40s")
    del scene.saved[forgotten]
    scene.run("optimize", timeout="40s")
    scene.backup(timeout="40s")


@scenario("data/", "meta/", "versions/", r"index/\d+$", "index/runs")
def a_kind_of_create_always_loses_its_answer(scene, kind):
    """What was asked to be stored is stored; nobody is ever told."""
    scene.init(2, optimize=True)
    scene.bucket.control([{"do": "lost", "verb": ["PUT"], "key": "/" + kind}])
    # A verb may fail; what it says to have saved is saved (`end`).
    scene.change()
    for arguments in (["backup", scene.source, "--json"], ["optimize"]):
        process = scene.begin(*arguments, timeout="10s")
        out, error = process.communicate(timeout=90)
        if process.returncode not in (0, 15):
            raise Failed(f"{arguments[0]} ended with {process.returncode}: {error}")
        if process.returncode == 0:
            scene.note(out if arguments[0] == "backup" else "")


@scenario((503, "SlowDown"), (500, "InternalError"), "reset", "close")
def one_request_in_six_fails(scene, *how):
    rule = {"do": how[0]} if len(how) == 1 else {"do": "status", "code": how[0], "error": how[1]}
    scene.init(1)
    scene.bucket.control([{**rule, "p": 0.16}])
    for arguments in (["snapshots"], ["check", "--read-data"], ["optimize"]):
        scene.run(*arguments, timeout="60s", within=120)
    scene.backup(timeout="60s", within=120)
    for snapshot, content in scene.saved.items():
        if scene.restored(snapshot, timeout="60s", within=120) != content:
            raise Failed(f"snapshot {snapshot} came back with other content")
    forgotten = next(iter(scene.saved))
    scene.run("forget", forgotten, timeout="60s", within=120)
    del scene.saved[forgotten]
    scene.run("optimize", timeout="60s", within=120)


@scenario()
def listings_lag_behind(scene):
    """A store that shows in listings what was there some seconds ago. It may cost time, and nothing else."""
    scene.init(2)
    # The configuration and the key are old.
    time.sleep(3)
    scene.bucket.control(stale=3.0)
    allowed = (0, 1, 11, 13, 15)
    for _ in range(2):
        scene.change()
        process = scene.begin("backup", scene.source, "--json")
        out, error = process.communicate(timeout=60)
        if process.returncode not in allowed:
            raise Failed(f"backup ended with {process.returncode}: {error}")
        scene.note(out)
        scene.run("optimize", code=allowed)
    scene.run("optimize", "--list-all", code=allowed)


@scenario()
def kills_on_a_store_that_loses_answers(scene):
    """Two clients whose backups are killed at any moment, and passes that are, too, on a store that loses answers."""
    rng = random.Random(7)
    scene.init(1)
    scene.bucket.control([
        {"do": "lost", "p": 0.08, "verb": ["PUT", "DELETE"]}, {"do": "late", "s": 0.5, "p": 0.04, "verb": ["PUT"]},
        {"do": "status", "code": 503, "error": "SlowDown", "p": 0.01}, {"do": "cut", "p": 0.03, "verb": ["GET", "LIST"]},
        {"do": "reset", "p": 0.02},
    ], delay=0.004)
    clients = [scene.client(number) for number in range(2)]
    ends, others = {}, [["optimize", "--dead-after", "2s"], ["optimize"], ["optimize", "--list-all", "--dead-after", "2s"], ["check"]]
    for _ in range(12):
        jobs = []
        for client in clients:
            client.change()
            jobs.append((client, "backup", client.begin("backup", client.source, "--json", timeout="60s")))
        jobs.append((None, "other", scene.begin(*rng.choice(others), timeout="60s")))
        touched = set()
        for at in rng.sample(range(3), 2):
            time.sleep(rng.random() * 0.6)
            if rng.random() < 0.6 and jobs[at][2].poll() is None:
                jobs[at][2].kill()
                touched.add(at)
        for at, (client, what, process) in enumerate(jobs):
            try:
                out, error = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed(f"{what} hangs: {process.communicate()[1]}") from None
            ends[f"{what} {process.returncode}"] = ends.get(f"{what} {process.returncode}", 0) + 1
            # A pass without patience takes a live job for dead, which is told that.
            if process.returncode not in (0, 11) and at not in touched:
                raise Failed(f"{what} ended with {process.returncode}: {error}")
            if client and process.returncode == 0:
                client.note(out)
    if ends.get("backup 0", 0) < 4 or not any(end.endswith("-9") for end in ends):
        raise Failed(f"too little happened: {ends}")


# A store that keeps no promise at all.


@scenario("at_once", "later")
def a_store_that_ignores_conditions_is_refused(scene, when):
    """Somebody who was taken for dead could commit what was deleted."""
    if when == "later":
        scene.init(1)
    scene.bucket.control(conditional=False)
    if when == "at_once":
        scene.run("init", "--insecure-kdf", code=15, says="conditional")
        if left := scene.bucket.keys():
            raise Failed(f"init left {left}")
        scene.bucket.heal()
        scene.init(1)
        return
    scene.run("backup", scene.source, code=15, says="conditional")
    scene.kept("optimize", "--list-all", "--dead-after", "1s", code=15, says="conditional")


@scenario()
def a_rotten_generation_is_not_built_on(scene):
    """The newest generation of a snapshot rots. A machine with a cache, whose base is the one before, would build on what passes deleted."""
    scene.run("init", "--insecure-kdf")
    big = os.path.join(scene.source, "big")

    def save(**how):
        out = scene.run("backup", scene.source, "--json", cache="a", **how)
        scene.note(out)

    content = scene.random.randbytes(24_000_000)
    with open(big, "wb") as out:
        out.write(content)
    save()
    first = next(iter(scene.saved))
    # Of the first some parts stay, so that a pass writes what is left of its containers once more.
    with open(big, "wb") as out:
        out.write(b"".join(content[at:at + 200_000] for at in range(0, len(content), 2_000_000)))
    with open(big + "ger", "wb") as out:
        out.write(scene.random.randbytes(6_000_000))
    save()
    scene.run("optimize", cache="b")
    scene.run("forget", first, cache="b")
    del scene.saved[first]
    scene.run("optimize", cache="b")
    newer = [key for key in scene.bucket.keys() if "/versions/" in key and key.endswith("/1")]
    if len(newer) != 1:
        raise Failed(f"no snapshot has a second generation: {newer}")
    whole, when = scene.bucket.objects[newer[0]]
    scene.bucket.objects[newer[0]] = (whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], when)
    lost = scene.saved.popitem()
    for number in (100, 101):
        scene.write(number)
        save(code=(0, 3, 13))
    if not scene.saved:
        raise Failed("nothing was saved beside a rotten snapshot")
    for snapshot, files in scene.saved.items():
        if scene.restored(snapshot) != files:
            raise Failed(f"snapshot {snapshot} was built on what is gone")
    scene.run("check", code=13, says=lost[0])
    scene.bucket.objects[newer[0]] = (whole, when)
    scene.saved.update([lost])


# One object that cannot be read.


@scenario((500, "InternalError"), (403, "InvalidObjectState"), (403, "AccessDenied"))
def one_container_cannot_be_read(scene, code, error):
    """The rest is restored, and everything names the object."""
    scene.init(3)
    key = [key for key in scene.bucket.keys() if "/data/" in key][1]
    scene.bucket.control([{"do": "status", "code": code, "error": error, "verb": ["GET"], "key": key}])
    name = key.removeprefix("repository/")
    # Cold storage is no damage.
    is_cold = error == "InvalidObjectState"
    words = "in cold storage" if is_cold else error
    target = tempfile.mkdtemp(dir=scene.folder)
    scene.run("restore", f"latest:{scene.source}", "--target", target, code=3 if is_cold else 13, says=words)
    restored, whole = scene.digest(target), scene.digest(scene.source)
    whole_files = [path for path, content in whole.items() if restored.get(path) == content]
    if not 10 <= len(whole_files) < len(whole):
        raise Failed(f"{len(whole_files)} of {len(whole)} files came back")
    scene.run("check", "--read-data", code=0 if is_cold else 13, says=words if is_cold else name)
    scene.run("repair", "snapshots", "-n", code=(0, 3, 13), says="")


@scenario("short", "page", "flip")
def bodies_are_wrong_for_a_while(scene, how):
    """A proxy that cuts, changes or replaces what it passes on."""
    scene.init(2, optimize=True)
    page = {"do": "raw", "code": 200, "body": PORTAL, "headers": {"Content-Type": "text/html"}}
    # A wrong bit in a wrapped key is not to be told from a wrong password.
    met = "/(config|data|meta|versions|forgotten|index)" if how == "flip" else ""
    rule = {**(page if how == "page" else {"do": how}), "verb": ["GET"], "key": met}
    for arguments in (["snapshots"], ["check", "--read-data"], ["optimize"]):
        scene.bucket.control([{**rule, "n": 3}])
        scene.run(*arguments, timeout="30s")
        scene.bucket.control([{**rule, "n": 3, "skip": 3}])
        scene.run(*arguments, timeout="30s")
    if how != "flip":
        # A wrong bit in a frame of contents shows when it is opened, after the body was taken: such a file is named as damaged.
        for _ in range(3):
            scene.bucket.control([{**rule, "p": 0.05}])
            scene.restored(next(iter(scene.saved)), timeout="30s")


# What lasts is told at once, in words that help.

STATUS = {
    "no_bucket": ({"code": 404, "error": "NoSuchBucket"}, "snapshots", "the bucket or container does not exist"),
    "no_bucket_for_init": ({"code": 404, "error": "NoSuchBucket"}, "init", "the bucket or container does not exist"),
    "clock": ({"code": 403, "error": "RequestTimeTooSkewed"}, "snapshots", "the clock of this machine is wrong"),
    "denied": ({"code": 403, "error": "AccessDenied"}, "snapshots", "access denied"),
    "no_condition": ({"code": 501, "error": "NotImplemented", "verb": ["PUT"]}, "backup", "If-None-Match"),
    "no_put": ({"code": 405, "error": "MethodNotAllowed", "verb": ["PUT"]}, "backup", "If-None-Match"),
}


@scenario(*STATUS)
def a_lasting_refusal_is_told_at_once(scene, which):
    scene.init(1)
    rule, verb, says = STATUS[which]
    scene.bucket.control([{"do": "status", **rule}])
    arguments = {"backup": ["backup", scene.source], "init": ["init", "--insecure-kdf"]}.get(verb, [verb])
    scene.run(*arguments, code=15, says=says, within=8, timeout=None)


@scenario()
def other_lasting_answers_are_told_at_once(scene):
    scene.init(1)
    elsewhere = {"do": "raw", "code": 301, "body": "<Error><Code>PermanentRedirect</Code></Error>",
                 "headers": {"x-amz-bucket-region": "eu-west-1"}}
    page = {"do": "raw", "code": 200, "body": PORTAL, "headers": {"Content-Type": "text/html"}}
    for rule, says in ((elsewhere, "set AWS_REGION"), (page, "is this an S3 server?")):
        scene.bucket.control([rule])
        scene.run("snapshots", code=15, says=says, within=12, timeout=None)
    scene.bucket.control([{"do": "no_range"}])
    scene.run("restore", "latest", "--target", os.path.join(scene.folder, "out"), code=15, says="does this server know ranges?",
              within=20, timeout=None)


@scenario()
def addresses_that_lead_nowhere_are_told_at_once(scene):
    scene.init(1)
    whole = scene.repository
    unknown = "s3:http://no-such-host.invalid/bucket"
    for other, says in (("s3:https://" + whole.partition("//")[2], "http://"), (unknown, "host is not known")):
        scene.repository = other
        scene.run("snapshots", code=15, says=says, within=8, timeout=None)
    scene.repository = whole


@scenario()
def a_server_without_etags_will_do(scene):
    scene.init()
    scene.bucket.control(etag=False)
    scene.backup()
    scene.run("optimize")
    scene.backup()


# A store that is silent.


@scenario("hang", "busy")
def silence_is_said_and_ends_at_the_first_signal(scene, how):
    scene.init(1)
    rule = {"hang": {"do": "hang"}, "busy": {"do": "status", "code": 503, "error": "SlowDown"}}[how]
    for asked in (signal.SIGINT, signal.SIGTERM):
        # The first requests are answered: the backup has begun.
        scene.bucket.control([{**rule, "skip": 9}])
        process = scene.begin("backup", scene.source, timeout=None)
        said = ""
        overdue = threading.Timer(60, process.kill)
        overdue.start()
        while "the storage has" not in said:
            line = process.stderr.readline()
            if not line:
                raise Failed(f"it never said that the storage is silent: {said}")
            said += line
        overdue.cancel()
        process.send_signal(asked)
        began = time.time()
        try:
            _, error = process.communicate(timeout=8)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"{asked.name} did not end it: {process.communicate()[1]}") from None
        took = time.time() - began
        # It says that it stops, or why it has stopped, whichever it comes to first.
        if process.returncode != 130 or took > 5 or not any(word in error for word in ("stopping", "stopped")):
            raise Failed(f"{asked.name}: {process.returncode} after {took:.1f} s: {said}{error}")
        scene.bucket.heal()


def main():
    failed = []
    picked = {name: found for name, found in SCENARIOS.items() if not PICKED or any(name.startswith(p) for p in PICKED)}

    def play(name):
        function, given = picked[name]
        folder = tempfile.mkdtemp()
        began = time.time()
        try:
            scene = Scene(folder)
            function(scene, *given)
            scene.end()
            problem = None
        except Failed as failure:
            problem = str(failure)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return problem, time.time() - began

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("LYING_S3_AT_ONCE", "4"))) as pool:
        for name, (problem, took) in zip(picked, pool.map(play, picked)):
            print(f"{'FAILED' if problem else 'ok':6} {name} ({took:.1f} s)", flush=True)
            if problem:
                failed.append(name)
                print(f"       {problem}", flush=True)
    print(f"lying s3: {len(picked) - len(failed)} of {len(picked)} scenarios whole")
    sys.exit(1 if failed else 0)


main()
