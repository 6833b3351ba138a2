"""rustic: restic's repository format, written in Rust."""

import json

from tools.base import PASSWORD, Tool


class Rustic(Tool):
    name = "rustic"
    binary = "rustic"
    stores = ("local", "s3")

    def env(self):
        s3 = self.store.kind == "s3"
        keys = {
            "OPENDAL_BUCKET": self.store.bucket,
            "OPENDAL_ENDPOINT": self.store.endpoint,
            "OPENDAL_REGION": "us-east-1",
            "OPENDAL_ROOT": "/repo",
            "OPENDAL_ACCESS_KEY_ID": self.store.access_key,
            "OPENDAL_SECRET_ACCESS_KEY": self.store.secret_key,
        }
        return {
            "RUSTIC_REPOSITORY": "opendal:s3" if s3 else str(self.store.path),
            "RUSTIC_PASSWORD": PASSWORD,
            "RUSTIC_CACHE_DIR": str(self.work / "cache"),
            "RUSTIC_NO_PROGRESS": "true",
            **(keys if s3 else {}),
        }

    def init(self):
        return [self.run("init")]

    def backup(self, source, label):
        return self.run("backup", "--tag", label, source)

    def backup_full(self, source, label):
        return self.run("backup", "--force", "--tag", label, source)

    def restore(self, label, target):
        groups = json.loads(self.ask("snapshots", "--json", "--filter-tags", label))
        newest = max((snapshot for group in groups for snapshot in group["snapshots"]), key=lambda snapshot: snapshot["time"])
        return self.run("restore", f"{newest['id']}:{newest['paths'][0]}", target)

    def forget(self, keep):
        # Without the last option space is only marked, and freed a day later.
        return self.run("forget", "--keep-last", keep, "--prune", "--instant-delete")

    def versions(self):
        return self.run("snapshots")


TOOL = Rustic
