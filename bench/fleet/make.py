#!/usr/bin/env python3
"""Makes what a fleet of disk images is built from: a tree for each role, and the packages that each day brings.

    bench/fleet/make.py FOLDER                       Debian: needs root, debootstrap and a mirror; 3 GB, some 10 minutes
    bench/fleet/make.py FOLDER --synthetic           random programs of 20 KB, without network, in a second

Trees are Debian 12 as its last point release left it, with the packages of their role. Days bring real versions of installed
packages: first those of security and updates, then those of backports, then those of Debian 13. `run.py` and `peers.py` build
images of the trees, and unpack the packages of each day in place. The folder can be used again and again; nothing in it changes.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import tarfile

COMMON = "systemd-sysv openssh-server ca-certificates curl rsyslog logrotate cron less vim-tiny python3-minimal"
ROLES = {
    "web": "nginx php8.2-fpm php8.2-mysql php8.2-gd",
    "db": "postgresql",
    "python": "python3-django python3-numpy python3-psycopg2 gunicorn",
    "java": "tomcat10",
    "mail": "postfix dovecot-imapd",
}
# Images of each role, in the order of ROLES, out of 16.
OFTEN = ["web", "db", "python", "web", "java", "db", "web", "mail", "python", "web", "db", "java", "web", "mail", "db", "python"]
SUITES = [
    ("debian-security", "bookworm-security"), ("debian", "bookworm-updates"), ("debian", "bookworm-backports"),
    ("debian-security", "trixie-security"), ("debian", "trixie"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--sources", type=int, default=8, help="source packages that each day upgrades")
    parser.add_argument("--mirror", default="http://deb.debian.org")
    parser.add_argument("--synthetic", action="store_true")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    (args.folder / "packages").mkdir(parents=True, exist_ok=True)
    (args.folder / "trees").mkdir(exist_ok=True)
    if args.synthetic:
        roles, days = ["web"], synthetic(args.folder, args.days)
    else:
        Debian(args.folder, args.mirror).trees()
        roles, days = OFTEN, Debian(args.folder, args.mirror).upgrades(args.days, args.sources)
    (args.folder / "fleet.json").write_text(json.dumps({"roles": roles, "days": days}, indent=1) + "\n")


def synthetic(folder, days):
    """One tree of 40 programs. Each day brings ten of them as packages of a file each, of which a third is new."""
    tree, chosen = folder / "trees/web", random.Random(1)
    for inside in ("etc", "var/log", "var/lib/dpkg/info", "usr/bin", "srv"):
        (tree / inside).mkdir(parents=True, exist_ok=True)
    programs = [bytearray(chosen.randbytes(20_000)) for _ in range(40)]
    status = ""
    for number, content in enumerate(programs):
        (tree / f"usr/bin/program-{number}").write_bytes(content)
        (tree / f"var/lib/dpkg/info/program-{number}.list").write_text(f"/usr/bin/program-{number}\n")
        status += f"Package: program-{number}\nStatus: install ok installed\nVersion: 0\n\n"
    (tree / "var/lib/dpkg/status").write_text(status)
    made = []
    for day in range(1, days):
        made.append([])
        for number in chosen.sample(range(40), 10):
            programs[number][:6000] = chosen.randbytes(6000)
            with tarfile.open(folder / f"packages/program-{number}_{day}.tar", "w") as tar:
                member = tarfile.TarInfo(f"./usr/bin/program-{number}")
                member.size, member.mode = len(programs[number]), 0o755
                tar.addfile(member, io.BytesIO(programs[number]))
            made[-1].append({"package": f"program-{number}", "version": str(day), "list": f"program-{number}.list"})
    return made


class Debian:
    def __init__(self, folder, mirror):
        self.folder, self.mirror = folder, mirror

    def trees(self):
        base = self.folder / "trees/base"
        if not (base / "etc/done").exists():
            if not (base / "usr").exists():
                run("debootstrap", "--variant=minbase", "bookworm", base, self.mirror + "/debian")
            self.install(base, COMMON)
        for role, packages in ROLES.items():
            tree = self.folder / "trees" / role
            if not (tree / "etc/done").exists():
                shutil.rmtree(tree, ignore_errors=True)
                run("cp", "-a", base, tree)
                (tree / "etc/done").unlink()
                self.install(tree, packages)

    def install(self, tree, packages):
        """Installs packages, starts nothing, and leaves no caches."""
        policy = tree / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        (tree / "etc/resolv.conf").write_bytes(pathlib.Path("/etc/resolv.conf").read_bytes())
        with chroot(tree) as inside:
            inside("apt-get", "-q", "update")
            inside("apt-get", "-q", "-y", "--no-install-recommends", "install", *packages.split())
            inside("apt-get", "clean")
        policy.unlink()
        shutil.rmtree(tree / "var/lib/apt/lists")
        (tree / "var/lib/apt/lists").mkdir()
        (tree / "etc/done").touch()

    def upgrades(self, days, sources):
        """For each day but the first, its packages. Downloads them, and keeps their files as tar files."""
        apt = self.folder / "apt"
        if not apt.exists():
            run("cp", "-a", self.folder / "trees/base", apt)
            lines = [f"deb {self.mirror}/{archive} {suite} main\n" for archive, suite in SUITES]
            (apt / "etc/apt/sources.list").write_text("".join(lines))
            with chroot(apt) as inside:
                inside("apt-get", "-q", "update")
        installed = {}
        for role in ROLES:
            for paragraph in (self.folder / "trees" / role / "var/lib/dpkg/status").read_text().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if not line.startswith(" ") and ": " in line)
                if fields:
                    installed[fields["Package"]] = fields["Version"]
        with chroot(apt) as inside:
            offers = self.offers(inside, installed)
            # Each source package once a suite; the suites in their order, and within them by chance.
            chosen = random.Random(12)
            order = sorted(offers, key=lambda offer: (offer[0], chosen.random()))
            made = []
            for day in range(days - 1):
                made.append([])
                for _, packages in order[day * sources:(day + 1) * sources]:
                    made[-1] += [self.package(inside, apt, name, version) for name, version in sorted(packages.items())]
        return made

    def offers(self, inside, installed):
        """(place of the suite, {package: version}) of each source package that a suite has newer than the one before."""
        found, newest = {}, dict(installed)
        names = sorted(installed)
        table = [line.split(" | ") for line in inside("apt-cache", "madison", *names).splitlines()]
        source = {}
        for paragraph in inside("apt-cache", "show", "--no-all-versions", *names).split("\n\n"):
            fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if not line.startswith(" ") and ": " in line)
            if fields:
                source[fields["Package"]] = fields.get("Source", fields["Package"]).split()[0]
        for place, (_, suite) in enumerate(SUITES):
            for name, version, where in (map(str.strip, row) for row in table):
                if f" {suite}/main" in where and "Packages" in where and is_newer(version, newest[name]):
                    found.setdefault((place, source[name]), {})[name] = version
                    newest[name] = version
        return [(place, packages) for (place, _), packages in sorted(found.items())]

    def package(self, inside, apt, name, version):
        tar = self.folder / f"packages/{name}_{version.replace(':', '%3a')}.tar"
        control = tar.with_suffix(".control")
        if not control.exists():
            inside("sh", "-c", 'mkdir -p /debs && cd /debs && rm -f ./*.deb && apt-get -q download "$0"', f"{name}={version}")
            deb = next((apt / "debs").glob("*.deb"))
            with open(tar, "wb") as file:
                subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=file)
            part = tar.with_suffix(".part")
            part.write_bytes(subprocess.run(["dpkg-deb", "--field", deb], check=True, stdout=subprocess.PIPE).stdout)
            part.rename(control)
        fields = control.read_text()
        same = "Multi-Arch: same" in fields
        return {"package": name, "version": version, "list": f"{name}:amd64.list" if same else f"{name}.list"}


def is_newer(version, than):
    return subprocess.run(["dpkg", "--compare-versions", version, "gt", than]).returncode == 0


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def chroot(tree):
    """Gives a function that runs a command in the tree, and returns what it printed."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "HOME": "/root"}
    environment |= {key: os.environ[key] for key in ("http_proxy", "https_proxy") if key in os.environ}

    def inside(*command):
        return subprocess.run(["chroot", tree, *command], env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

    run("mount", "-t", "proc", "proc", tree / "proc")
    try:
        yield inside
    finally:
        run("umount", "-l", tree / "proc")


if __name__ == "__main__":
    main()
