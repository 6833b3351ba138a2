"""restic: chunks of about 1 MiB, zstd, one encrypted pack format; the most used of the peers."""

import json

from tools.base import PASSWORD, Tool


class Restic(Tool):
    name = "restic"
    binary = "restic"
    stores = ("local", "s3")

    def env(self):
        s3 = self.store.kind == "s3"
        repository = f"s3:{self.store.endpoint}/{self.store.bucket}/repo" if s3 else str(self.store.path)
        keys = {"AWS_ACCESS_KEY_ID": self.store.access_key, "AWS_SECRET_ACCESS_KEY": self.store.secret_key} if s3 else {}
        return {"RESTIC_REPOSITORY": repository, "RESTIC_PASSWORD": PASSWORD, "RESTIC_CACHE_DIR": str(self.work / "cache"), **keys}

    @classmethod
    def version(cls):
        import subprocess

        return subprocess.run([cls.program(), "version"], capture_output=True, text=True).stdout.strip()

    def init(self):
        return [self.run("init")]

    def backup(self, source, label):
        return self.run("backup", "--json", "--tag", label, source)

    def backup_full(self, source, label):
        return self.run("backup", "--json", "--force", "--tag", label, source)

    def restore(self, label, target):
        snapshot = json.loads(self.ask("snapshots", "--json", "--tag", label))[-1]["id"]
        return self.run("restore", snapshot, "--target", target)

    def forget(self, keep):
        return self.run("forget", "--keep-last", keep, "--prune")

    def versions(self):
        return self.run("snapshots")


TOOL = Restic
