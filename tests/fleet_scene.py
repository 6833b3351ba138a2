"""Fleet batches with real processes, for the scripts beside this file: images, workers, planners, and what must hold afterwards.

Each host is a command prefix (such as `ip netns exec NAME`) with environment variables of its own. A worker is started again when it
ends, as systemd does it. After a batch, `Fleet.judge` demands:

- every image is named once: as saved, or as not saved with a reason;
- what is named as saved restores byte for byte, and nothing else has a snapshot of this batch;
- `fleet retry` saves the others, `check --read-data` finds nothing, and `fleet clean` leaves nothing below `fleet/`.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import threading
import time

LIMIT = 180  # seconds that no process of a batch takes


class Failed(Exception):
    """A batch broke a promise."""


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Host:
    """A name, how to run a command there, and the workers that run there."""

    def __init__(self, name, prefix=(), **environment):
        self.name, self.prefix, self.environment = name, list(prefix), environment


class Worker:
    """`fleet work` on a host. Ended, it is started again after a second, unless `again` is False."""

    def __init__(self, fleet, host, more=(), again=True):
        self.fleet, self.host, self.more, self.again = fleet, host, list(more), again
        self.starts, self.ends, self.process = 0, [], None
        self.over = threading.Event()
        self.log = os.path.join(fleet.folder, f"worker-{host.name}-{len(fleet.workers)}.log")
        self.start()
        self.thread = threading.Thread(target=self.attend, daemon=True)
        self.thread.start()

    def start(self):
        self.starts += 1
        with open(self.log, "ab") as log:
            command = ["fleet", "work", self.fleet.inventory, "--host", self.host.name, *self.more]
            self.process = self.fleet.begin(self.host, *command, stdout=log, stderr=log)

    def attend(self):
        while True:
            self.ends.append(self.process.wait())
            if self.over.wait(1) or not self.again:
                return
            self.start()

    def signal(self, which):
        self.process.send_signal(which)

    def kill(self, again=False):
        """`kill -9`; and whether another process follows."""
        self.again = again
        self.signal(signal.SIGKILL)

    def end(self):
        """Ends it as systemd does, first softly."""
        self.over.set()
        self.again = False
        for which in (signal.SIGCONT, signal.SIGTERM):
            if self.process.poll() is None:
                self.signal(which)
        self.thread.join(20)
        if self.thread.is_alive():
            self.signal(signal.SIGKILL)
            self.thread.join(20)


class Fleet:
    """A repository, hosts with images that change from batch to batch, and what is known of their snapshots."""

    def __init__(self, larder, folder, repository, hosts, planner, seed=1, images=2, shared=1, size=2_000_000):
        self.larder, self.folder, self.repository = larder, folder, repository
        self.hosts, self.planner = hosts, planner
        self.random = random.Random(seed)
        self.workers, self.saved, self.held = [], {}, []
        self.images = {}
        self.inventory = os.path.join(folder, "images.toml")
        common = self.random.randbytes(size // 2)
        with open(self.inventory, "w") as out:
            for number in range(len(hosts) * images + shared):
                is_shared = number >= len(hosts) * images
                host = None if is_shared else hosts[number // images].name
                name = f"shared-{number}" if is_shared else f"{host}-{number % images}"
                path = os.path.join(folder, name + ".raw")
                own = self.random.randbytes(size // 4)
                # Common to all, to two neighbours, and to nobody.
                if number % 2 == 0:
                    two = self.random.randbytes(size // 4)
                with open(path, "wb") as image:
                    image.write(common + two + own)
                self.images[name] = path
                place = "shared = true" if is_shared else f'host = "{host}"'
                out.write(f'[[image]]\nsource = "{path}"\n{place}\n')

    def change(self, share=0.3):
        """Another day: some stretches of each image are new, and some of them are the same in several images."""
        stock = [self.random.randbytes(50_000) for _ in range(4)]
        for path in self.images.values():
            size = os.path.getsize(path)
            with open(path, "r+b") as image:
                for _ in range(max(1, int(size * share) // 50_000)):
                    image.seek(self.random.randrange(0, size - 50_000))
                    image.write(self.random.choice(stock) if self.random.random() < 0.4 else self.random.randbytes(50_000))

    def environment(self, host):
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        own = os.path.join(self.folder, f"host-{host.name}")
        return {
            **kept, "LARDER_PASSWORD": "secret", "LARDER_REPOSITORY": self.repository, "LARDER_CACHE_DIR": f"{own}-cache",
            "LARDER_STATE": f"{own}-state", "LARDER_MIN_AGE": "0s", "HOME": self.folder, **host.environment,
        }

    def begin(self, host, *arguments, **how):
        return subprocess.Popen([*host.prefix, self.larder, *arguments], env=self.environment(host), **how)

    def run(self, *arguments, code=0, text=True, within=LIMIT):
        """Runs a verb on the planner's host, which must end with this code."""
        process = self.begin(self.planner, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text)
        try:
            out, error = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
            raise Failed(f"{' '.join(arguments)}: not ended after {within} s: {self.short(error)}") from None
        codes = code if isinstance(code, tuple) else (code,)
        if process.returncode not in codes:
            raise Failed(f"{' '.join(arguments)}: {process.returncode}, not {code}: {self.short(error)}{self.short(out) if text else ''}")
        return out

    @staticmethod
    def short(said):
        """What was said, without progress."""
        lines = [line for line in (said if isinstance(said, str) else said.decode()).splitlines() if '"status"' not in line]
        return "\n".join(line[:400] for line in lines[-20:])

    def work(self, host, *more, again=True):
        worker = Worker(self, host, more, again)
        self.workers.append(worker)
        return worker

    def plan(self, *more, claim=2, task=8):
        """Begins `fleet run`; its output goes to files, so that nobody has to read it in time."""
        self.held = {name: self.read(path) for name, path in self.images.items()}
        patience = ["--claim-timeout", f"{claim}s", "--task-timeout", f"{task}s", "--no-pass", "--json"]
        self.out, self.error = (os.path.join(self.folder, name) for name in ("planner.out", "planner.log"))
        with open(self.out, "wb") as out, open(self.error, "wb") as error:
            self.process = self.begin(
                self.planner, "fleet", "run", self.inventory, *patience, *more, stdout=out, stderr=error
            )
        return self.process

    def ended(self):
        """Waits for the planner: its exit code, and its messages by type."""
        try:
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"fleet run: not ended after {LIMIT} s: {self.said()}") from None
        return code, self.messages(self.text(self.out))

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return digest(file.read())

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @staticmethod
    def messages(out):
        found = {}
        for line in out.splitlines():
            if line.startswith("{"):
                message = json.loads(line)
                found.setdefault(message["message_type"], []).append(message)
        return found

    def said(self):
        """The ends of all logs, for a failure."""
        logs = [self.error, *(worker.log for worker in self.workers)]
        return "".join(f"\n-- {os.path.basename(log)}\n{self.short(self.text(log))}" for log in logs)

    def dumped(self, snapshot):
        """The digest of the image in a snapshot."""
        nodes = [json.loads(line) for line in self.run("ls", "--json", snapshot).splitlines()]
        path = next(node["path"] for node in nodes if node.get("type") == "file")
        return digest(self.run("dump", snapshot, path, text=False))

    def snapshots(self):
        return {one["id"] for one in json.loads(self.run("snapshots", "--json"))}

    def take(self, images):
        """Takes a report at its word, and looks whether it is so. Returns the images that are not saved, with reasons."""
        lost = {}
        for image in images:
            name = image["name"]
            if "snapshot_id" not in image:
                lost[name] = f"{image['stage']}: {image['error']}"
                continue
            if self.dumped(image["snapshot_id"]) != self.held[name]:
                raise Failed(f"{name} restores to other bytes: {image}")
            self.saved[image["snapshot_id"]] = self.held[name]
        return lost

    def judge(self, code, messages, expect=(), before_retry=lambda: None, can_retry=True):
        """Looks at a batch that has ended, and retries it; see the head of this file. `expect`: images that must be saved at once.
        Returns a line about it."""
        images = messages.get("fleet_image", [])
        if sorted(image["name"] for image in images) != sorted(self.images):
            raise Failed(f"the report names {[image['name'] for image in images]}{self.said()}")
        lost = self.take(images)
        expected = (0,) if not lost else (3,) if len(lost) < len(images) else (1, 3, 13, 15, 16)
        if code not in expected:
            raise Failed(f"exit code {code}, not one of {expected}; not saved: {lost}{self.said()}")
        if unexpected := {name: why for name, why in lost.items() if name in expect}:
            raise Failed(f"these were to be saved: {unexpected}{self.said()}")
        self.all_there()
        before_retry()
        self.all_there()
        if lost and can_retry:
            self.retry(messages["fleet_summary"][0]["batch"], lost)
        return f"{len(images) - len(lost)} of {len(images)} saved at once" + (f"; {self.brief(lost)}" if lost else "")

    def retry(self, batch, lost):
        """Retries a batch, which must name and save these images."""
        patience = ["--claim-timeout", "2s", "--task-timeout", "30s", "--no-pass", "--json"]
        out = self.messages(self.run("fleet", "retry", batch, *patience, code=(0, 3)))
        # Of two reports, the second one has the images that the first one does not name as saved.
        last = {image["name"]: image for image in out.get("fleet_image", [])}
        if missing := set(lost) - set(last):
            raise Failed(f"fleet retry says nothing of {missing}")
        if again := self.take(last.values()):
            raise Failed(f"fleet retry did not save {again}{self.said()}")
        self.all_there()

    @staticmethod
    def brief(lost):
        return "; ".join(f"{name}: {why[:70]}" for name, why in sorted(lost.items()))

    def all_there(self):
        """Snapshots are those that were named as saved, no other ones."""
        found = self.snapshots()
        if found != set(self.saved):
            extra, gone = found - set(self.saved), set(self.saved) - found
            raise Failed(f"snapshots that nobody named: {sorted(extra)}; that are missing: {sorted(gone)}{self.said()}")

    def batch(self):
        """The newest batch that left anything."""
        return max(one["batch"] for one in json.loads(self.run("fleet", "status", "--json")))

    def close(self, left):
        """Ends the workers; nothing is left of batches, and every snapshot is whole. `left` lists what is below `fleet/`."""
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        # Processes that were killed left leases. Their batches look dead at once.
        self.run("optimize", "--dead-after", "1s", code=(0, 11))
        self.run("fleet", "clean")
        if objects := left():
            raise Failed(f"left after clean: {sorted(objects)[:8]}")
        self.run("check", "--read-data")

    def restore_all(self):
        for snapshot, content in self.saved.items():
            if self.dumped(snapshot) != content:
                raise Failed(f"snapshot {snapshot} restores to other bytes in the end")


def until(listed, text, within=60, fleet=None):
    """Waits until `listed()` has a name with this text."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if any(text in name for name in listed()):
            return
        if fleet and fleet.process.poll() is not None:
            return
        time.sleep(0.01)
    raise Failed(f"nothing named {text} came within {within} s{fleet.said() if fleet else ''}")


def below(folder):
    """The names of all files below a folder."""
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
