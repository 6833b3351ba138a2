"""Network namespaces with a host each, and the servers and workers of fleet batches in them. For `fleet_net.py`.

Nothing touches the network of the machine: the bridge between the hosts is in a namespace of its own.
"""

import itertools
import os
import shutil
import signal
import subprocess
import time

from fleet_scene import Failed, Fleet, Host, below, until

NUMBERS = itertools.count()
HOSTS = 4


def tool(*command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise Failed(f"{' '.join(command)}: {ran.stderr}")


def program(name):
    cached = os.path.join(os.environ.get("GOBIN") or os.path.expanduser("~/.cache/larder-ci/bin"), name)
    found = shutil.which(name) or (cached if os.access(cached, os.X_OK) else None)
    if not found:
        raise Failed(f"there is no {name} in the path")
    return found


class Net:
    """A bridge in a namespace of its own, and a namespace for each host, with a link that can be cut."""

    def __init__(self):
        self.tag = f"larder{os.getpid()}x{next(NUMBERS)}"
        self.hub, self.names = f"{self.tag}-hub", []
        tool("ip", "netns", "add", self.hub)
        tool("ip", "-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        tool("ip", "-n", self.hub, "link", "set", "bridge0", "up")

    def add(self, name):
        """Adds a host. Returns its address, and what runs a command there."""
        self.names.append(name)
        number, space = len(self.names), f"{self.tag}-{name}"
        tool("ip", "netns", "add", space)
        tool("ip", "-n", self.hub, "link", "add", self.port(name), "type", "veth", "peer", "name", "eth0", "netns", space)
        tool("ip", "-n", self.hub, "link", "set", self.port(name), "master", "bridge0", "up")
        tool("ip", "-n", space, "link", "set", "lo", "up")
        tool("ip", "-n", space, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        tool("ip", "-n", space, "link", "set", "eth0", "up")
        return f"10.77.0.{number}", ["ip", "netns", "exec", space]

    def port(self, name):
        return f"to-{name}"

    def cut(self, name):
        tool("ip", "-n", self.hub, "link", "set", self.port(name), "down")

    def mend(self, name):
        tool("ip", "-n", self.hub, "link", "set", self.port(name), "up")

    def slow(self, name, rate):
        """What comes from this host comes at this rate, and what goes there as well."""
        limit = ["root", "tbf", "rate", rate, "burst", "64k", "latency", "200ms"]
        tool("ip", "netns", "exec", self.hub, "tc", "qdisc", "add", "dev", self.port(name), *limit)
        tool("ip", "netns", "exec", f"{self.tag}-{name}", "tc", "qdisc", "add", "dev", "eth0", *limit)

    def end(self):
        for space in [*(f"{self.tag}-{name}" for name in self.names), self.hub]:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


class Service:
    """A server in a namespace, which can be killed and started again."""

    def __init__(self, folder, name, prefix, command, environment=None):
        self.log = os.path.join(folder, f"{name}.log")
        self.command, self.environment = [*prefix, *command], {**os.environ, **(environment or {})}
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Scene:
    """The network, the servers and the hosts of one scenario."""

    def __init__(self, larder, folder, queue="store", **how):
        self.folder, self.net = folder, Net()
        self.services, self.mounts, self.fleet = [], [], None
        try:
            self.build(larder, queue, how)
        except BaseException:
            self.end()
            raise

    def build(self, larder, queue, how):
        place, run_there = self.net.add("store")
        self.disk = os.path.join(self.folder, "minio")
        os.makedirs(os.path.join(self.disk, "test"))
        keys = {"MINIO_ROOT_USER": "larder", "MINIO_ROOT_PASSWORD": "larder-secret"}
        command = [program("minio"), "server", self.disk, "--address", f"{place}:9000", "--quiet"]
        self.services.append(Service(self.folder, "minio", run_there, command, keys))
        self.queue, self.nats = queue, None
        if queue == "nats":
            at, run_there = self.net.add("nats")
            self.nats_files = os.path.join(self.folder, "nats")
            command = [program("nats-server"), "-js", "-a", at, "-p", "4222", "-sd", self.nats_files]
            self.nats = Service(self.folder, "nats", run_there, command)
            self.services.append(self.nats)
            self.queue = f"nats://{at}:4222"
        access = {"AWS_ACCESS_KEY_ID": "larder", "AWS_SECRET_ACCESS_KEY": "larder-secret", "AWS_REGION": "us-east-1"}
        hosts = [Host(name, self.net.add(name)[1], **access) for name in ("plan", *(f"hv{n}" for n in range(1, HOSTS + 1)))]
        self.fleet = Fleet(larder, self.folder, f"s3:http://{place}:9000/test/repository", hosts[1:], hosts[0], **how)
        self.hosts = {host.name: host for host in hosts}
        for _ in range(100):
            try:
                self.fleet.run("init", "--insecure-kdf", "--timeout", "2s")
                break
            except Failed:
                time.sleep(0.2)
        self.wait_for_nats()

    def wait_for_nats(self):
        for _ in range(300):
            if not self.nats or "Server is ready" in self.fleet.text(self.nats.log)[self.ready:]:
                return
            time.sleep(0.05)
        raise Failed("the NATS server did not start")

    ready = 0

    def restart_nats(self):
        self.ready = len(self.fleet.text(self.nats.log))
        self.nats.start()
        self.wait_for_nats()

    def names(self):
        """The objects of batches, as they lie on the disk of the store."""
        return [name for name in below(os.path.join(self.disk, "test/repository/fleet")) if name.endswith("xl.meta")]

    def begin(self, *more, **how):
        """Workers and a planner."""
        self.workers = {host.name: self.fleet.work(host, "--queue", self.queue) for host in self.fleet.hosts}
        self.fleet.plan("--queue", self.queue, *more, **how)

    def until(self, text):
        until(self.names, text, fleet=self.fleet)

    def of(self, *hosts):
        """The images of these hosts."""
        return [name for name in self.fleet.images if name.partition("-")[0] in hosts]

    def others(self, *lost):
        return self.of(*(host.name for host in self.fleet.hosts if host.name not in lost))

    def judge(self, expect=(), **how):
        code, messages = self.fleet.ended()
        return self.fleet.judge(code, messages, expect, **how)

    def next_day(self):
        """Another batch, with which nothing happens, saves everything."""
        for host in self.fleet.hosts:
            if not any(worker.again for worker in self.fleet.workers if worker.host is host):
                self.fleet.work(host, "--queue", self.queue)
        self.fleet.change()
        self.fleet.plan("--queue", self.queue, claim=10, task=60)
        self.judge(expect=self.fleet.images)
        self.fleet.close(self.names)
        self.fleet.restore_all()

    def end(self):
        for worker in self.fleet.workers if self.fleet else []:
            worker.end()
        for service in self.services:
            service.kill()
        for mount in self.mounts:
            subprocess.run(["umount", "-l", mount], capture_output=True)
        self.net.end()
