"""The experiments: what is run on a data set, in which order, and what is written down.

Tools take turns at every step and the order rotates, so that a disturbance of the machine does not fall on one tool only.
A tool that fails at a step is reported and left out for the rest of that repetition; the others go on.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from harness import compare, measuring
from harness.measuring import Command, CommandFailed
from harness.trash import Trash
from tools.base import Store


class Bench:
    """One run: settings, the tools of the current repetition, and all records so far."""

    def __init__(self, settings, tools, source, server, trash):
        self.settings = settings
        self.trash = trash
        self.classes = tools
        self.source = source
        self.server = server
        self.records = []
        self.failures = []
        self.tools = []
        self.repetition = 0

    # Repetitions

    def start_repetition(self, number):
        """Fresh repositories for all tools."""
        self.end_repetition()
        self.repetition = number
        for index, cls in enumerate(self.classes):
            work = self.settings.work / cls.name
            work.mkdir(parents=True)
            bucket = f"bench-{number}-{index}"
            store = self.server.store(bucket) if self.server else Store("local", path=work / "repo")
            tool = cls(work, store)
            self.tools.append(tool)
            try:
                for command in tool.init():
                    measuring.run(command, tool.env(), work / "scratch")
            except (CommandFailed, RuntimeError) as error:
                self.fail(tool, "init", "", error)

    def end_repetition(self):
        """Removes the repositories of the repetition before."""
        for cls in self.classes:
            self.trash.discard(self.settings.work / cls.name)
        for tool in self.tools:
            if self.server:
                self.server.drop(tool.store.bucket)
        self.tools = []

    def in_turn(self, step):
        """The tools still in the race, beginning with another one at every step and repetition."""
        at = (step + self.repetition) % max(1, len(self.tools))
        return list(self.tools[at:] + self.tools[:at])

    def fail(self, tool, step, label, error):
        words = f"{tool.name}, {step} {label}: {error}"
        print(f"FAILED {words}", file=sys.stderr, flush=True)
        self.failures.append(words)
        if tool in self.tools:
            self.tools.remove(tool)

    # Steps

    def measure(self, tool, step, label, size, command):
        """Runs one command and records it. Returns the record, or None when it failed."""
        if command is None:
            return None
        before = self.server.requests() if self.server else None
        try:
            cost = measuring.run(command, tool.env(), tool.work / "scratch", cold=self.settings.drop_caches)
        except (CommandFailed, RuntimeError) as error:
            self.fail(tool, step, label, error)
            return None
        record = {"repetition": self.repetition, "tool": tool.name, "step": step, "label": label, "bytes": size, **cost.to_json()}
        record.update(tool.facts(cost.output))
        if self.server:
            after = self.server.requests()
            kinds = {api: count - before.get(api, 0) for api, count in after.items() if count > before.get(api, 0)}
            record["requests"], record["requests_by_kind"] = sum(kinds.values()), kinds
        if step.startswith("backup") or step == "forget":
            record["repo_bytes"], record["repo_objects"] = self.repository_size(tool)
        self.records.append(record)
        rate = f" {size / 1e6 / cost.wall:8.1f} MB/s {cost.cpu / (size / 1e9):7.2f} CPU s/GB" if size else ""
        repo = f" repo {record['repo_bytes'] / 1e6:8.1f} MB" if "repo_bytes" in record else ""
        print(
            f"{self.repetition} {step:15} {label:8} {tool.name:10} {cost.wall:8.2f} s{rate} {cost.rss / 1e6:6.0f} MB{repo} noise {cost.noise:.0%}",
            file=sys.stderr,
            flush=True,
        )
        return record

    def repository_size(self, tool):
        """(bytes, objects): sizes as written, not as the file system rounds them."""
        if self.server:
            return self.server.size(tool.store.bucket)
        total = count = 0
        for folder, _, files in os.walk(tool.store.path):
            for name in files:
                total += os.lstat(os.path.join(folder, name)).st_size
                count += 1
        return total, count

    @contextlib.contextmanager
    def target_folder(self, on_memory):
        """An empty folder to restore into, gone afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="larder-bench-", dir="/dev/shm" if on_memory else self.settings.work))
        try:
            target = folder / "target"
            target.mkdir()
            yield target
        finally:
            if on_memory:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self.trash.discard(folder)

    def restore(self, tool, step, label, size, expected, on_memory):
        """Restores into an empty folder, compares with `expected`, removes it again."""
        with self.target_folder(on_memory) as target:
            try:
                command = tool.restore(label, target)
            except (RuntimeError, LookupError, ValueError) as error:
                self.fail(tool, step, label, error)
                return
            record = self.measure(tool, step, label, size, command)
            if record is None:
                return
            serious, lesser = compare.compare(expected, tool.restored(self.source.path, target))
            record["wrong"], record["lesser"] = len(serious), lesser
            if serious:
                self.fail(tool, step, label, f"the restore differs from the source: {serious[:5]} ({len(serious)} in all)")

    # Experiments

    def versions(self):
        """Every version of the set in turn into one repository; then the newest and the first one back."""
        restore_step = "restore tmpfs" if self.settings.target == "tmpfs" else "restore"
        for repetition in range(1, self.settings.repeat + 1):
            self.start_repetition(repetition)
            sizes = []
            for index, version in enumerate(self.source.versions):
                sizes.append(self.source.show(index))
                if not self.settings.drop_caches:
                    self.source.warm()
                for tool in self.in_turn(index):
                    self.measure(tool, "backup", version.label, sizes[-1], tool.backup(self.source.path, version.label))
                if self.settings.passes:
                    for tool in self.in_turn(index):
                        self.measure(tool, "pass", version.label, 0, tool.maintain())
            if self.settings.forget:
                self.forget()
            if self.settings.restore:
                newest, first = self.source.versions[-1], self.source.versions[0]
                for tool in self.in_turn(0):
                    self.restore(tool, restore_step, newest.label, sizes[-1], self.source.path, self.settings.target == "tmpfs")
                for tool in self.in_turn(1) if not self.settings.forget else []:
                    self.restore(tool, restore_step, first.label, sizes[0], self.source.first, self.settings.target == "tmpfs")
        if not self.settings.keep:
            self.end_repetition()

    def forget(self):
        """The older half of the versions goes, and its space is freed."""
        keep = (len(self.source.versions) + 1) // 2
        for tool in self.in_turn(0):
            self.measure(tool, "forget", f"all but {keep}", 0, tool.forget(keep))

    def single(self):
        """One version alone: fresh backup, unchanged again, unchanged but read in full, restored to memory and to disk.

        `cp -a` of the same tree stands beside the restores.
        """
        label = self.source.versions[0].label
        size = self.source.show(0)
        for repetition in range(1, self.settings.repeat + 1):
            self.start_repetition(repetition)
            if not self.settings.drop_caches:
                self.source.warm()
            for tool in self.in_turn(0):
                self.measure(tool, "backup", label, size, tool.backup(self.source.path, label))
            for tool in self.in_turn(1):
                self.measure(tool, "backup again", label, size, tool.backup(self.source.path, "again"))
            for tool in self.in_turn(2):
                self.measure(tool, "backup in full", label, size, tool.backup_full(self.source.path, "full"))
            if self.settings.restore:
                for step, on_memory in (("restore tmpfs", True), ("restore", False)):
                    for tool in self.in_turn(3):
                        self.restore(tool, step, label, size, self.source.path, on_memory)
                    self.copy(step, size, label, on_memory)
        if not self.settings.keep:
            self.end_repetition()

    def copy(self, step, size, label, on_memory):
        """What `cp -a` of the source costs on the same target."""
        with self.target_folder(on_memory) as target:
            command = Command(["cp", "-a", f"{self.source.path}/.", str(target)])
            cost = measuring.run(command, {}, self.settings.work / "scratch", cold=self.settings.drop_caches)
            row = {"repetition": self.repetition, "tool": "cp -a", "step": step, "label": label, "bytes": size}
            self.records.append({**row, **cost.to_json()})

    def listing(self, count):
        """Lists a repository of many versions of a tiny folder. Key derivation is part of it, for every tool that has one."""
        self.source.path.mkdir(parents=True)
        self.start_repetition(1)
        for number in range(1, count + 1):
            (self.source.path / "note.txt").write_text(f"version {number}\n" * 100)
            for tool in self.in_turn(number):
                try:
                    command = tool.backup(self.source.path, f"v{number:03}")
                    measuring.run(command, tool.env(), tool.work / "scratch")
                except (CommandFailed, RuntimeError) as error:
                    self.fail(tool, "backup", f"v{number:03}", error)
        for repetition in range(1, self.settings.repeat + 1):
            self.repetition = repetition
            for tool in self.in_turn(0):
                self.measure(tool, "list", f"{count}", 0, tool.versions())
        if not self.settings.keep:
            self.end_repetition()
