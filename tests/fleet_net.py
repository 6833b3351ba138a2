#!/usr/bin/env python3
"""Fleet batches between network namespaces: four hosts with workers, one that plans, a NATS server and an S3 server (MinIO), each with
an address of its own. Links are cut, servers and workers are killed and stopped, a disk is full, and the store is slow.

    tests/fleet_net.py LARDER [--at-once N] [--seed N] [SCENARIO...]

Each scenario has namespaces and a repository of its own. After each accident, `fleet_scene.py` says what must hold. Then another batch
saves the next day of all images, undisturbed. Needs root, `ip`, `minio` and `nats-server`.
"""

import argparse
import concurrent.futures
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from fleet_namespaces import Net, Scene, tool
from fleet_scene import Failed, until

SCENARIOS = {}
SEED = 1


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


@scenario
def nothing_happens(make):
    scene = make("nats")
    scene.begin(task=60)
    return scene.judge(expect=scene.fleet.images)


@scenario
def a_link_of_a_worker_is_cut(make):
    """For longer than the time for tasks, while the others go on."""
    scene = make()
    scene.begin()
    scene.until("/done/send/0/0")
    scene.net.cut("hv1")
    code, messages = scene.fleet.ended()
    scene.net.mend("hv1")
    return scene.fleet.judge(code, messages, scene.others("hv1"))


@scenario
def links_of_workers_flap(make):
    """Of two hosts, for times around the time for claims."""
    scene = make("nats")
    scene.begin("--rounds", "2", claim=2, task=30)
    for text, seconds in (("/claim/send/", 3), ("/done/send/", 1), ("/done/store/", 4)):
        scene.until(text)
        for name in ("hv2", "hv3"):
            scene.net.cut(name)
        time.sleep(seconds)
        for name in ("hv2", "hv3"):
            scene.net.mend(name)
    return scene.judge(expect=scene.others("hv2", "hv3"))


@scenario
def the_link_of_the_planner_is_cut(make):
    scene = make()
    scene.begin()
    scene.until("/done/send/")
    scene.net.cut("plan")
    time.sleep(12)
    scene.net.mend("plan")
    return scene.judge(expect=scene.others())


@scenario
def the_link_of_nats_is_cut(make):
    scene = make("nats")
    scene.begin(task=60)
    scene.until("/claim/send/")
    scene.net.cut("nats")
    code, messages = scene.fleet.ended()
    scene.net.mend("nats")
    return scene.fleet.judge(code, messages, scene.fleet.images)


def nats_is_killed(make, keep):
    scene = make("nats")
    scene.begin("--rounds", "2", task=60)
    scene.until("/claim/send/")
    scene.nats.kill()
    if not keep:
        shutil.rmtree(scene.nats_files)
    time.sleep(3)
    scene.restart_nats()
    return scene.judge(expect=scene.fleet.images)


@scenario
def nats_is_killed_and_keeps_its_files(make):
    return nats_is_killed(make, True)


@scenario
def nats_is_killed_and_loses_its_files(make):
    return nats_is_killed(make, False)


@scenario
def the_link_of_the_store_is_cut(make):
    """For less than the time for tasks."""
    scene = make("nats")
    scene.begin(task=90)
    scene.until("/done/send/")
    scene.net.cut("store")
    time.sleep(8)
    scene.net.mend("store")
    return scene.judge(expect=scene.fleet.images)


@scenario
def the_link_of_the_store_is_cut_for_long(make):
    """For longer than the time for tasks: who comes back first does not take the others for dead."""
    scene = make()
    scene.begin(claim=2, task=10)
    scene.until("/done/send/")
    scene.net.cut("store")
    time.sleep(25)
    scene.net.mend("store")
    return scene.judge(expect=scene.fleet.images)


@scenario
def the_store_is_killed(make):
    """And comes back with its files."""
    scene = make()
    scene.begin(task=90)
    scene.until("/done/store/")
    scene.services[0].kill()
    time.sleep(5)
    scene.services[0].start()
    return scene.judge(expect=scene.fleet.images)


@scenario
def workers_are_killed(make):
    """One before its questions are sent, another one between its store and its end."""
    scene = make("nats")
    scene.begin()
    scene.until("/claim/send/")
    scene.workers["hv1"].kill(again=True)
    scene.until("/done/store/")
    scene.workers["hv2"].kill(again=True)
    return scene.judge(expect=scene.others("hv1", "hv2"))


def worker_is_stopped(make, text, clean):
    """Past the times for claims and for tasks, and past the end of the batch. `clean`: its objects are gone before it continues."""
    scene = make()
    # On a busy machine, a worker that lives is silent for seconds.
    scene.begin(claim=2, task=15)
    scene.until(text)
    scene.workers["hv1"].signal(signal.SIGSTOP)

    def continues():
        if clean:
            scene.fleet.run("fleet", "clean")
        scene.workers["hv1"].signal(signal.SIGCONT)
        time.sleep(8)

    return scene.judge(scene.others("hv1"), before_retry=continues, can_retry=not clean)


for action, text in {"sends": "/claim/send/0/0", "stores": "/done/join/", "finishes": "/done/place/"}.items():
    for clean in (False, True):
        name = f"a_worker_is_stopped_before_it_{action}" + ("_and_continues_after_clean" if clean else "")
        SCENARIOS[name] = functools.partial(worker_is_stopped, text=text, clean=clean)


@scenario
def the_scratch_of_a_worker_is_full(make):
    scene = make(size=6_000_000, images=1)
    cache = scene.fleet.environment(scene.hosts["hv2"])["LARDER_CACHE_DIR"]
    os.makedirs(cache)
    tool("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", cache)
    scene.mounts.append(cache)
    scene.begin(task=20)

    def has_room():
        tool("mount", "-o", "remount,size=64m", cache)

    line = scene.judge(expect=scene.others("hv2"), before_retry=has_room)
    if "the worker left the batch" not in line:
        raise Failed(f"nothing was full: {line}")
    return line


@scenario
def the_store_is_slow(make):
    """A megabyte a second for all."""
    scene = make(size=1_000_000, images=1)
    scene.net.slow("store", "8mbit")
    scene.begin(claim=10, task=90)
    return scene.judge(expect=scene.fleet.images)


@scenario
def everything_happens(make):
    """Accidents by chance, several at a time, on two days; `--seed` repeats their choice, but not their moments."""
    scene = make("nats", shared=2)
    rng, lines = random.Random(SEED), []
    for _ in range(2):
        before = set(scene.names())
        if not lines:
            scene.begin("--rounds", str(rng.randrange(1, 3)), claim=2, task=8)
        else:
            scene.fleet.change()
            scene.fleet.plan("--queue", scene.queue, claim=2, task=8)
        # Without its servers, it would refuse to begin.
        until(lambda: set(scene.names()) - before, "/plan", fleet=scene.fleet)
        told = []
        while scene.fleet.process.poll() is None and len(told) < 12:
            time.sleep(rng.random() * 3)
            told.append(accident(scene, rng))
        lines.append(f"{', '.join(told)}: {scene.judge()}")
    return "; ".join(lines)


def accident(scene, rng):
    """Lets something happen, and mends it. Returns what it was."""
    hosts = [host.name for host in scene.fleet.hosts]
    what, seconds = rng.choice(["cut", "cut", "kill", "kill", "stop", "stop", "nats", "store"]), rng.random() * 12
    if what == "cut":
        names = rng.sample([*hosts, "plan", "nats", "store"], rng.randrange(1, 4))
        for name in names:
            scene.net.cut(name)
        time.sleep(seconds)
        for name in names:
            scene.net.mend(name)
        return f"cut {'+'.join(names)} {seconds:.0f} s"
    if what == "nats":
        scene.nats.kill()
        if keeps := rng.random() < 0.5:
            time.sleep(seconds)
        else:
            shutil.rmtree(scene.nats_files)
        scene.restart_nats()
        return f"nats killed, {'with' if keeps else 'without'} its files"
    if what == "store":
        scene.services[0].kill()
        time.sleep(seconds / 2)
        scene.services[0].start()
        return "store killed"
    host = rng.choice(hosts)
    worker = scene.workers[host]
    if what == "kill":
        worker.kill(again=True)
        return f"{host} killed"
    worker.signal(signal.SIGSTOP)
    time.sleep(seconds)
    worker.signal(signal.SIGCONT)
    return f"{host} stopped {seconds:.0f} s"


def play(larder, name):
    folder, began, scenes = tempfile.mkdtemp(), time.monotonic(), []

    def make(queue="store", **how):
        scenes.append(Scene(larder, folder, queue, **how))
        return scenes[0]

    try:
        line, problem = SCENARIOS[name](make), None
        scenes[0].next_day()
    except Failed as failure:
        line, problem = None, str(failure)
    finally:
        for scene in scenes:
            scene.end()
        shutil.rmtree(folder, ignore_errors=True)
    return line, problem, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("larder")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_intermixed_args()
    globals()["SEED"] = asked.seed
    try:
        Net().end()
    except (Failed, FileNotFoundError) as failure:
        print(f"skipped: no network namespaces here: {failure}")
        return
    picked = [name for name in SCENARIOS if not asked.scenarios or any(name.startswith(one) for one in asked.scenarios)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(asked.at_once) as pool:
        for name, (line, problem, took) in zip(picked, pool.map(lambda name: play(asked.larder, name), picked)):
            failed += problem is not None
            print(f"{'FAILED' if problem else 'ok':6} {name} ({took:.0f} s): {problem or line}", flush=True)
    print(f"fleet net: {len(picked) - failed} of {len(picked)} scenarios whole")
    sys.exit(1 if failed or not picked else 0)


main()
