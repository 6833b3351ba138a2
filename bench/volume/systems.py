"""The block devices that are compared. Each one is served over NBD on a Unix socket, so that all have the same client."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
WAIT_SECONDS = 60
PROGRAM = os.environ.get("BENCH_LARDER", "target/release/larder")


def run(*command, **more):
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if ended.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {ended.returncode}: {ended.stderr.strip()}")
    return ended.stdout


def stored(path):
    """Bytes that the files below a folder take on the disk."""
    return sum(file.lstat().st_blocks * 512 for file in [path, *path.rglob("*")])


def cpu_and_peak(pid):
    """CPU seconds and peak memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    # A process that has ended has no memory.
    peak = next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return (int(fields[11]) + int(fields[12])) / TICKS, peak


class System:
    """A store with any number of disks in a folder of its own."""

    name = ""
    packages = ()
    can_clone = False

    def __init__(self, folder):
        # Servers and file systems take absolute paths only.
        self.folder = Path(folder).resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.servers = {}
        self.stopped_cpu, self.peak = 0.0, 0

    @classmethod
    def missing(cls):
        return [program for program in cls.packages if not shutil.which(program)]

    def socket(self, disk):
        return self.folder / f"{disk}.sock"

    def uri(self, disk):
        return f"nbd+unix:///?socket={self.socket(disk)}"

    def spawn(self, key, socket, *command, env=None):
        socket.unlink(missing_ok=True)
        log = open(self.folder / f"{key}.log", "ab")
        server = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env={**os.environ, **(env or {})})
        self.servers[key] = server
        end = time.monotonic() + WAIT_SECONDS
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name}: the server does not start; see {log.name}")
            time.sleep(0.002)

    def helpers(self):
        """Processes beside the servers that do a part of the work."""
        return []

    def usage(self):
        """CPU seconds so far, and the largest peak of memory of one process, of all servers and helpers."""
        pids = [server.pid for server in self.servers.values() if server.poll() is None] + self.helpers()
        now = [cpu_and_peak(pid) for pid in pids]
        self.peak = max([self.peak, *(peak for _, peak in now)])
        return self.stopped_cpu + sum(cpu for cpu, _ in now), self.peak

    def stop(self, how=signal.SIGTERM):
        # Helpers stay, and are counted again.
        self.stopped_cpu = self.usage()[0] - sum(cpu_and_peak(pid)[0] for pid in self.helpers())
        for server in self.servers.values():
            server.send_signal(how)
        for server in self.servers.values():
            server.wait(WAIT_SECONDS)
        self.servers.clear()

    def settle(self):
        """What runs later to save space. Nothing, for most."""

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Raw(System):
    name, packages = "raw file (nbdkit)", ("nbdkit",)

    def create(self, disk, size):
        run("truncate", "-s", size, self.folder / f"{disk}.raw")

    def start(self, disks):
        for disk in disks:
            self.spawn(disk, self.socket(disk), "nbdkit", "--foreground", "--unix", self.socket(disk), "file", self.folder / f"{disk}.raw")

    def bytes(self):
        return stored(self.folder)


class Qcow2(System):
    name, packages = "qcow2 (qemu-nbd)", ("qemu-nbd", "qemu-img")

    def create(self, disk, size):
        run("qemu-img", "create", "-f", "qcow2", self.folder / f"{disk}.qcow2", size)

    def start(self, disks):
        for disk in disks:
            self.spawn(disk, self.socket(disk), "qemu-nbd", "--persistent", "--shared=8", "--cache=writeback",
                       "--format=qcow2", "--socket", self.socket(disk), self.folder / f"{disk}.qcow2")

    def bytes(self):
        return stored(self.folder)


class Mounted(Raw):
    """Raw files on a file system of its own, in an image file."""

    image_bytes = 16 << 30

    def __init__(self, folder):
        super().__init__(folder)
        self.image, self.outer = self.folder.with_suffix(".image"), self.folder
        self.image.unlink(missing_ok=True)
        run("truncate", "-s", self.image_bytes, self.image)
        self.mount()
        self.before = self.used()

    def bytes(self):
        os.sync()
        return self.used() - self.before

    def close(self):
        self.stop()
        self.unmount()
        self.image.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)


class Btrfs(Mounted):
    """Deduplicated offline, in blocks of 4 KiB."""

    name, packages = "btrfs zstd + duperemove", ("nbdkit", "mkfs.btrfs", "duperemove")

    def mount(self):
        run("mkfs.btrfs", "--quiet", self.image)
        run("mount", "-o", "loop,compress=zstd:3", self.image, self.folder)

    def unmount(self):
        run("umount", self.folder)

    def used(self):
        run("btrfs", "filesystem", "sync", self.folder)
        usage = os.statvfs(self.folder)
        return (usage.f_blocks - usage.f_bfree) * usage.f_frsize

    def settle(self):
        files = sorted(self.folder.glob("*.raw"))
        run("duperemove", "-dq", "--io-threads=2", "-b", "4096", *files)


class ZfsFuse(Mounted):
    """The other one that deduplicates inline."""

    name, packages = "zfs-fuse dedup=on", ("nbdkit", "zfs-fuse", "zpool")
    pool = "larderbench"

    def mount(self):
        if subprocess.run(["zpool", "list"], capture_output=True).returncode != 0:
            run("zfs-fuse")
            time.sleep(3)
        run("zpool", "create", "-f", "-m", self.folder, self.pool, self.image)
        run("zfs", "set", "dedup=on", self.pool)
        run("zfs", "set", "compression=on", self.pool)

    def unmount(self):
        # The file system is busy for a moment after its last user has ended.
        end = time.monotonic() + WAIT_SECONDS
        while (ended := subprocess.run(["zpool", "destroy", "-f", self.pool], capture_output=True, text=True)).returncode != 0:
            if time.monotonic() > end:
                raise RuntimeError(f"zpool destroy: {ended.stderr.strip()}")
            time.sleep(0.1)

    def helpers(self):
        return [int(pid) for pid in run("pidof", "zfs-fuse").split()]

    def used(self):
        text = run("zpool", "list", "-H", "-o", "alloc", self.pool).strip()
        units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
        return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(float(text))


class Larder(System):
    name = "larder volume"
    can_clone = True
    environment = {"LARDER_PASSWORD": "bench"}
    options = ()

    def __init__(self, folder):
        super().__init__(folder)
        self.store = self.folder / "store"
        self.larder("volume", "init", self.store, "--insecure-kdf")

    def larder(self, *words):
        return run(PROGRAM, *words, env={**os.environ, **self.environment})

    def uri(self, disk):
        return f"nbd+unix:///{disk}?socket={self.socket('all')}"

    def create(self, disk, size):
        self.larder("volume", "create", f"{self.store}/{disk}", size)

    def clone(self, disk, source):
        self.larder("volume", "create", f"{self.store}/{disk}", "--clone", source)

    def start(self, disks):
        self.spawn("all", self.socket("all"), PROGRAM, "volume", "serve", self.store, "--nbd",
                   f"unix:{self.socket('all')}", *self.options, env=self.environment)

    def bytes(self):
        return sum(stored(self.store / folder) for folder in ("containers", "runs", "manifest"))


class S3Backer(Raw):
    """Compressed and encrypted blocks as objects of a MinIO on this machine; not deduplicated."""

    name, packages = "s3backer on MinIO", ("nbdkit", "s3backer", "minio", "fusermount3")
    block, cached, bucket = 64 << 10, 1024, "bench"

    def __init__(self, folder):
        super().__init__(folder)
        (self.folder / "minio" / self.bucket).mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        log = open(self.folder / "minio.log", "ab")
        keys = {"MINIO_ROOT_USER": "larderbench", "MINIO_ROOT_PASSWORD": "larderbench", "MINIO_UPDATE": "off", "MINIO_DOMAIN": "localhost"}
        address = f"127.0.0.1:{self.port}"
        command = ["minio", "server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", self.folder / "minio"]
        self.minio = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env={**os.environ, **keys})
        self.sizes, self.mounted = {}, {}
        self.wait(self.answers, "MinIO does not answer")

    def answers(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def wait(self, ready, why):
        end = time.monotonic() + WAIT_SECONDS
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: {why}")
            time.sleep(0.01)

    def create(self, disk, size):
        self.sizes[disk] = size

    def start(self, disks):
        for disk in disks:
            mount = self.folder / f"{disk}.mount"
            mount.mkdir(exist_ok=True)
            log = open(self.folder / f"{disk}.s3backer.log", "ab")
            command = ["s3backer", "-f", "--accessId=larderbench", "--accessKey=larderbench", "--password=bench", "--encrypt",
                       "--compress=1", f"--baseURL=http://localhost:{self.port}/", "--region=us-east-1", f"--prefix={disk}",
                       f"--blockSize={self.block}", f"--size={self.sizes[disk]}", f"--blockCacheSize={self.cached}",
                       f"--filename={disk}.raw", "--quiet", "--reset-mounted-flag", self.bucket]
            subprocess.run(command, stdout=log, stderr=log)
            command[-2:] = [self.bucket, str(mount)]
            server = self.mounted[disk] = subprocess.Popen(command, stdout=log, stderr=log)
            self.wait(lambda: server.poll() is not None or (mount / f"{disk}.raw").exists(), "s3backer does not start")
            if server.poll() is not None:
                raise RuntimeError(f"{self.name}: s3backer ended; see {log.name}")
            self.spawn(disk, self.socket(disk), "nbdkit", "--foreground", "--unix", self.socket(disk), "file", mount / f"{disk}.raw")

    def stop(self, how=signal.SIGTERM):
        super().stop(how)
        for disk, server in self.mounted.items():
            # What waits in its cache is sent when it is unmounted, so it is not killed.
            run("fusermount3", "-u", self.folder / f"{disk}.mount")
            server.wait(WAIT_SECONDS)
        self.mounted.clear()

    def helpers(self):
        return [self.minio.pid, *(server.pid for server in self.mounted.values())]

    def bytes(self):
        return stored(self.folder / "minio")

    def close(self):
        try:
            self.stop()
        finally:
            self.minio.terminate()
            self.minio.wait(WAIT_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


ALL = {"larder": Larder, "raw": Raw, "qcow2": Qcow2, "btrfs": Btrfs, "zfs": ZfsFuse, "s3backer": S3Backer}
