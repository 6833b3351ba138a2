#!/usr/bin/env python3
"""Kills a worker, or the process that planned, with SIGKILL after every register of a fleet batch: real processes and a folder.

    tests/fleet_kill.py LARDER [--every N] [--first N] [--seed N] [--shared N] [VICTIM...]

The registers are the objects below `fleet/BATCH/done/`. VICTIM is `worker` or `planner`; both without one. Each run has a repository of
its own, an image of each of two hosts and shared ones (one by default), and a worker for each host. A worker is started again a second
after it was killed. A batch whose planner was killed is finished by the workers, and `fleet retry` reports it. Afterwards, see
`fleet_scene.py`.
"""

import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile
import time

from fleet_scene import Failed, Fleet, Host, below


# At most: two `send` and `place` of hosts, one of shared images, `join` and `resolve` of three partitions, twice, and three of each image.
REGISTERS = 30


def registers(folder):
    return [name for name in below(os.path.join(folder, "repository", "fleet")) if "/done/" in name]


def one(larder, victim, after, seed, shared):
    """Kills the victim after this number of registers. Returns whether there were as many, and a line about it."""
    folder = tempfile.mkdtemp()
    repository = os.path.join(folder, "repository")
    try:
        hosts = [Host("a"), Host("b")]
        fleet = Fleet(larder, folder, repository, hosts, Host("planner"), seed, images=1, shared=shared, size=400_000)
        fleet.run("init", "--insecure-kdf")
        workers = [fleet.work(host) for host in hosts]
        try:
            return play(fleet, victim, after, workers, folder, repository)
        finally:
            for worker in workers:
                worker.end()
            if fleet.process.poll() is None:
                fleet.process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(fleet, victim, after, workers, folder, repository):
    # On a busy machine, a worker that lives is silent for seconds.
    planner = fleet.plan("--queue", "store", task=15)
    while len(found := registers(folder)) < after and planner.poll() is None:
        time.sleep(0.001)
    if len(found) < after:
        code, messages = fleet.ended()
        fleet.judge(code, messages, expect=fleet.images)
        return False, ""
    newest = max(found, key=os.path.getmtime).partition("/done/")[2]
    if victim == "worker":
        workers[0].kill(again=True)
        code, messages = fleet.ended()
        line = fleet.judge(code, messages, expect=["b-0"])
    else:
        planner.kill()
        planner.wait()
        batch = fleet.batch()
        # The workers finish it; a retry waits for them, reports, and saves what they did not.
        fleet.retry(batch, fleet.images)
        line = f"the retry says {len(fleet.saved)} of {len(fleet.images)} are saved"
    fleet.close(lambda: below(os.path.join(repository, "fleet")))
    return True, f"{victim} killed after register {after} ({newest}): {line}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("larder")
    parser.add_argument("victims", nargs="*", default=["worker", "planner"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shared", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4)
    asked = parser.parse_intermixed_args()

    def play_one(run):
        victim, after = run
        try:
            return one(asked.larder, victim, after, asked.seed + after, asked.shared), None
        except Failed as failure:
            return (False, ""), f"{victim} after register {after}: {failure}"

    # A batch has fewer registers than that: the last runs see that there are no more.
    moments = [(victim, after) for victim in asked.victims for after in range(asked.first, REGISTERS + 1, asked.every)]
    failed = runs = 0
    with concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
        for (is_there, line), problem in pool.map(play_one, moments):
            runs += is_there
            failed += problem is not None
            if is_there or problem:
                print(f"FAILED {problem}" if problem else f"ok     {line}", flush=True)
    print(f"fleet kill: {runs} runs whole, {failed} not")
    sys.exit(1 if failed or not runs else 0)


main()
