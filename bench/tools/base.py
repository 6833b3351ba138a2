"""What an adapter has to say about its tool. The harness does the rest: timing, repeating, comparing, reporting."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.measuring import Command

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Store:
    """Where a repository lies: a local folder, or a bucket of an S3 server."""

    kind: str
    path: Path = Path("/nonexistent")
    endpoint: str = ""
    bucket: str = ""
    access_key: str = ""
    secret_key: str = ""


class Tool:
    """Base of all adapters. Commands are returned, not run, so that only the harness measures.

    `work` is a folder of this tool and repetition alone: caches, keys and settings go there, never to the user's own.
    """

    # Name in the tables; the binary, looked up in PATH unless the variable BENCH_<NAME> names another one.
    name = ""
    binary = ""
    # What differs from calling the tool with nothing but a repository and a path. Printed with the results.
    options = "defaults"
    stores = ("local",)

    def __init__(self, work, store):
        self.work = work
        self.store = store

    @classmethod
    def program(cls):
        """Path of the binary, or None when the tool is not here."""
        return shutil.which(os.environ.get(f"BENCH_{cls.name.upper().replace('-', '_')}", cls.binary))

    @classmethod
    def version(cls):
        """One line naming the version."""
        done = subprocess.run([cls.program(), "--version"], capture_output=True, text=True)
        return (done.stdout.strip() or done.stderr.strip()).splitlines()[0]

    def env(self):
        """Variables added for every command: repository, password, cache folder."""
        return {}

    def init(self):
        """Commands that make an empty repository. Not measured."""
        raise NotImplementedError

    def backup(self, source, label):
        """Backs up the folder `source` as version `label`, as a user would on an ordinary day."""
        raise NotImplementedError

    def backup_full(self, source, label):
        """The same, but reading every file whatever its size and time say. None when the tool cannot."""
        return None

    def restore(self, label, target):
        """Restores version `label` into the empty folder `target`. May ask the tool for ids with `ask`."""
        raise NotImplementedError

    def restored(self, source, target):
        """Where the content of `source` lies after a restore. Some tools repeat the whole path below the target."""
        nested = target / str(source).lstrip("/")
        return nested if nested.exists() else target

    def forget(self, keep):
        """Forgets all versions but the newest `keep` and frees their space. None when the tool needs several commands."""
        return None

    def maintain(self):
        """The offline pass that the tool wants after backups. None when it has none, or wants it only to free space."""
        return None

    def versions(self):
        """Lists all versions, as the user sees them."""
        raise NotImplementedError

    def facts(self, output):
        """Extra figures from the standard output of a backup or restore, such as `requests`."""
        return {}

    def run(self, *words, cwd=Path("/")):
        """A command of this tool's binary."""
        return Command([self.program(), *map(str, words)], cwd)

    def ask(self, *words):
        """Runs the tool unmeasured and returns its standard output."""
        clean = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        env = {**clean, "HOME": str(self.work), **self.env()}
        done = subprocess.run([self.program(), *map(str, words)], env=env, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} {' '.join(map(str, words))}: {done.stderr.strip()[-400:]}")
        return done.stdout


def json_lines(output):
    """The JSON objects among the lines of an output; other lines are passed over."""
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
