"""Runs one command and writes what it cost as JSON. A process of its own, started by `measuring.py` for every command.

It is small on purpose. A child's peak memory starts from that of the process that forked it, so a big harness would hide the
peak of a small tool; this one's few megabytes are below every tool's. It also adopts what the command leaves behind (bupstash
works through a second process), so that CPU time of the whole tree is in its account for children.

    spawn.py RESULT STDOUT STDERR CWD COMMAND...
"""

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid):
    """The process and everything below it. Processes may end while they are looked at."""
    found = [pid]
    for parent in found:
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children") as file:
                    found += [int(word) for word in file.read().split()]
        except OSError:
            continue
    return found


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


def sample_tree(pid, stop, peak):
    """Peak of the summed memory of the tree, by sampling: an upper reading, for shared pages count once per process."""
    while not stop.wait(SAMPLE_SECONDS):
        members = tree(pid)
        if len(members) > 1:
            peak[0] = max(peak[0], sum(map(resident, members)))


def machine_busy():
    """CPU seconds the whole machine has spent so far: everything but idle and waiting for the disk."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def main():
    result_path, stdout, stderr, cwd, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.chdir(cwd)
    create = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, stdout, create, 0o644),
        (os.POSIX_SPAWN_OPEN, 2, stderr, create, 0o644),
    ]
    stop, peak = threading.Event(), [0]
    busy_before = machine_busy()
    start = time.monotonic()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
    # Whoever ends the harness ends the tool as well.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    sampler = threading.Thread(target=sample_tree, args=(pid, stop, peak), daemon=True)
    sampler.start()
    _, status, own = os.wait4(pid, 0)
    wall = time.monotonic() - start
    stop.set()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    settled = time.monotonic() - start
    busy = machine_busy() - busy_before
    result = {
        "exit": os.waitstatus_to_exitcode(status),
        "wall": wall,
        "user": used.ru_utime,
        "sys": used.ru_stime,
        # Kilobytes on Linux; the larger of the command and any child it waited for.
        "rss": max(own.ru_maxrss, used.ru_maxrss) * 1024,
        "rss_tree": max(peak[0], max(own.ru_maxrss, used.ru_maxrss) * 1024),
        "read": used.ru_inblock * 512,
        "written": used.ru_oublock * 512,
        "others": max(0.0, busy - used.ru_utime - used.ru_stime),
        "settled": settled,
    }
    with open(result_path, "w") as file:
        json.dump(result, file)


main()
