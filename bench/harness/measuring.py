"""Measures one command of a tool: wall time, CPU of the process tree, peak memory, and how disturbed the machine was."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SPAWN = Path(__file__).resolve().parent / "spawn.py"
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Command:
    """What to run, and in which folder."""

    argv: list
    cwd: Path = Path("/")


@dataclass
class Measurement:
    """What one command cost. Seconds and bytes.

    `flush` is how long the machine needed afterwards to write what the command left unwritten; a tool that syncs itself leaves
    little. `noise` is the share of the machine's CPU that other processes took meanwhile.
    """

    wall: float
    cpu: float
    sys: float
    rss: int
    rss_tree: int
    read: int
    written: int
    flush: float
    noise: float
    exit: int
    output: str
    errors: str

    def to_json(self):
        row = asdict(self)
        del row["output"], row["errors"]
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


class CommandFailed(Exception):
    """A tool ended with an error; carries the command and the end of what it said."""

    def __init__(self, command, measurement):
        said = (measurement.errors.strip() or measurement.output.strip())[-800:]
        super().__init__(f"{' '.join(map(str, command.argv))}: exit {measurement.exit}: {said}")


def drop_caches():
    """Forgets every clean page, so that the next command reads from the disk. Needs root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def run(command, env, scratch, cold=False):
    """Runs a command under `spawn.py`. Raises CommandFailed when its exit code is not 0."""
    scratch.mkdir(parents=True, exist_ok=True)
    files = [scratch / name for name in ("result.json", "stdout", "stderr")]
    files[0].unlink(missing_ok=True)
    # Unwritten data of the command before would be written at this one's cost.
    os.sync()
    if cold:
        drop_caches()
    arguments = [sys.executable, "-I", "-S", SPAWN, *files, command.cwd, *command.argv]
    # The tools get only what they are given: no settings of the person who runs the benchmark.
    clean = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    env = {**clean, "HOME": str(scratch), **env}
    process = subprocess.Popen([str(word) for word in arguments], env=env, stderr=subprocess.PIPE, text=True)
    try:
        _, complaint = process.communicate()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode != 0:
        raise RuntimeError(f"{command.argv[0]} did not start: {complaint.strip()[-400:]}")
    before_flush = time.monotonic()
    os.sync()
    flush = time.monotonic() - before_flush
    raw = json.loads(files[0].read_text())
    measurement = Measurement(
        wall=raw["wall"],
        cpu=raw["user"] + raw["sys"],
        sys=raw["sys"],
        rss=raw["rss"],
        rss_tree=raw["rss_tree"],
        read=raw["read"],
        written=raw["written"],
        flush=flush,
        noise=raw["others"] / raw["settled"] / CORES,
        exit=raw["exit"],
        output=files[1].read_text(errors="replace"),
        errors=files[2].read_text(errors="replace"),
    )
    if measurement.exit != 0:
        raise CommandFailed(command, measurement)
    return measurement
