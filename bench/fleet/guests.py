"""Images of a fleet that `make.py` made: ext4 file systems, which packages of a day are unpacked into while they are mounted.

An upgrade does what dpkg does to the file system: each file is written beside the old one and renamed, files that the new version
lacks are removed, and the database of dpkg is written again. Scripts of packages are not run. Each day, an image also has what a
guest of its role writes: logs, which are rotated, and data. Needs root, for mounts.
"""

import contextlib
import gzip
import json
import os
import pathlib
import random
import shutil
import subprocess
import tarfile
import uuid

START = 1_790_000_000
DAY = 86_400


class Fleet:
    """The images in `work`, as they are on one day."""

    def __init__(self, made, work, count, mib):
        plan = json.loads((made / "fleet.json").read_text())
        self.made, self.days, self.packages = made, plan["days"], {}
        roles = plan["roles"]
        self.images = [Image(made, work / f"vm-{number:02}", roles[number % len(roles)], number, mib) for number in range(count)]

    def advance(self, day):
        """Makes the images what they are on this day (1, 2, ...). Days come in their order."""
        upgrades = self.days[day - 1] if day <= len(self.days) else []
        packages = [Package(self.made / "packages", upgrade) for upgrade in upgrades]
        for image in self.images:
            image.advance(day, packages)
        return len(packages)

    def content(self):
        """Bytes of the images without pages of zeros."""
        return sum(data(image.path) for image in self.images)

    def logical(self):
        return sum(image.path.stat().st_size for image in self.images)


def data(path):
    """Bytes of a file in pages that are not zero. Which of the others are holes differs from moment to moment."""
    found, zero = 0, bytes(4096)
    with open(path, "rb") as file:
        while block := file.read(4 << 20):
            found += sum(4096 for at in range(0, len(block), 4096) if block[at:at + 4096] != zero)
    return found


class Package:
    """A package with its files in memory."""

    def __init__(self, folder, upgrade):
        self.name, self.version, self.list = upgrade["package"], upgrade["version"], upgrade["list"]
        tar = folder / f"{self.name}_{self.version.replace(':', '%3a')}.tar"
        control = tar.with_suffix(".control")
        self.control = control.read_text() if control.exists() else f"Package: {self.name}\nVersion: {self.version}\n"
        with tarfile.open(tar) as opened:
            self.members = [(member, opened.extractfile(member).read() if member.isreg() else b"") for member in opened]
        self.paths = [member.name.removeprefix(".").rstrip("/") for member, _ in self.members]


class Image:
    def __init__(self, made, folder, role, number, mib):
        # A folder for each, because other tools back up folders.
        folder.mkdir(parents=True)
        self.path, self.mount, self.role, self.name = folder / f"{folder.name}.raw", folder.with_suffix(".mount"), role, folder.name
        self.chance = random.Random(number)
        identity = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-U", identity, "-E", f"hash_seed={identity}", "-d",
                        made / "trees" / role, self.path, f"{mib}M"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with self.mounted():
            self.write("etc/hostname", f"{self.name}\n".encode())
            self.write("etc/machine-id", f"{self.chance.getrandbits(128):032x}\n".encode())
            if role == "db":
                self.write("srv/table", self.chance.randbytes(16 << 20))

    @contextlib.contextmanager
    def mounted(self):
        self.mount.mkdir()
        subprocess.run(["mount", "-o", "loop,discard", self.path, self.mount], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", self.mount], check=True)
            self.mount.rmdir()

    def advance(self, day, packages):
        with self.mounted():
            info = self.mount / "var/lib/dpkg/info"
            mine = [package for package in packages if (info / package.list).exists()]
            for package in mine:
                self.unpack(package, info)
            if mine:
                self.register(mine, day)
            self.work(day)

    def unpack(self, package, info):
        old = (info / package.list).read_text().splitlines()
        for member, content in package.members:
            target = self.inside(member.name)
            if member.isdir():
                if not target.is_dir():
                    target.mkdir(mode=member.mode, parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(target.name + ".dpkg-new")
            if member.issym():
                new.unlink(missing_ok=True)
                new.symlink_to(member.linkname)
            elif member.islnk():
                os.link(self.inside(member.linkname), new)
            else:
                new.write_bytes(content)
                new.chmod(member.mode)
                os.utime(new, (member.mtime, member.mtime))
            os.chown(new, member.uid, member.gid, follow_symlinks=False)
            if target.is_dir() and not target.is_symlink():
                new.unlink()
            else:
                new.rename(target)
        # Names of the two folders that are one.
        kept = {path.removeprefix("/usr") for path in package.paths}
        for path in old:
            if path.removeprefix("/usr") not in kept:
                gone = self.inside(path)
                if gone.is_symlink() or gone.is_file():
                    gone.unlink()
        (info / package.list).write_text("".join(path + "\n" for path in package.paths))

    def register(self, packages, day):
        """Writes the database of dpkg, which has all packages in one file, and its log."""
        status = self.mount / "var/lib/dpkg/status"
        new = {package.name: package for package in packages}
        paragraphs = status.read_text().split("\n\n")
        for at, paragraph in enumerate(paragraphs):
            name = paragraph.partition("\n")[0].removeprefix("Package: ")
            if name in new:
                first, _, rest = new[name].control.partition("\n")
                paragraphs[at] = f"{first}\nStatus: install ok installed\n{rest.rstrip()}"
        status.rename(status.with_name("status-old"))
        status.write_text("\n\n".join(paragraphs))
        lines = [f"{self.stamp(day)} status installed {package.name} {package.version}\n" for package in packages]
        with open(self.mount / "var/log/dpkg.log", "a") as log:
            log.writelines(lines)

    def work(self, day):
        """A day of a guest: some 2 MB of logs, and data of its role."""
        chance, log = self.chance, self.mount / "var/log"
        for name, lines in (("syslog", 4000), ("auth.log", 500), ("access.log", 8000 if self.role == "web" else 500)):
            file = log / name
            if file.exists():
                rotated = log / f"{name}.1"
                if rotated.exists():
                    (log / f"{name}.{day}.gz").write_bytes(gzip.compress(rotated.read_bytes(), mtime=0))
                file.rename(rotated)
            file.write_text("".join(self.line(day, name) for _ in range(lines)))
        with open(log / "kern.bin", "ab") as journal:
            journal.write(chance.randbytes(256 << 10))
        if self.role == "db":
            with open(self.mount / "srv/table", "r+b") as table:
                for _ in range(200):
                    table.seek(chance.randrange(2048) * 8192)
                    table.write(chance.randbytes(8192))
            self.write(f"srv/log-{day % 3}", chance.randbytes(2 << 20))
        elif self.role in ("web", "mail"):
            for number in range(20):
                self.write(f"srv/{day}/{number}", chance.randbytes(chance.randrange(10 << 10, 200 << 10)))
        elif self.role == "python":
            shutil.rmtree(self.mount / "srv/application", ignore_errors=True)
            for number in range(200):
                self.write(f"srv/application/{number}.py", "".join(self.line(day, "code") for _ in range(40)).encode())

    def line(self, day, name):
        bits = self.chance.getrandbits(96)
        return f"{self.stamp(day)} {self.name} {name}[{bits & 0xfff}]: from 10.{bits >> 12 & 255}.{bits >> 20 & 255}.7 took {bits >> 28 & 0xffff} id {bits >> 44:x}\n"

    @staticmethod
    def stamp(day):
        return str(START + day * DAY)

    def write(self, inside, content):
        path = self.mount / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def inside(self, path):
        """A path of the image, below its mount. A symbolic link on the way must not lead out of it."""
        path = self.mount / path.removeprefix(".").lstrip("/")
        parent = pathlib.Path(os.path.realpath(path.parent))
        if path != self.mount and not parent.is_relative_to(os.path.realpath(self.mount)):
            raise ValueError(f"{path} is outside of its image")
        return path
