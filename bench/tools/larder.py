"""Larder itself, from this work tree's release build."""

import json
from pathlib import Path

from tools.base import PASSWORD, Tool, json_lines


class Larder(Tool):
    name = "larder"
    binary = str(Path(__file__).resolve().parents[2] / "target" / "release" / "larder")
    stores = ("local", "s3")

    def env(self):
        s3 = self.store.kind == "s3"
        repository = f"s3:{self.store.endpoint}/{self.store.bucket}/repo" if s3 else str(self.store.path)
        keys = {"AWS_ACCESS_KEY_ID": self.store.access_key, "AWS_SECRET_ACCESS_KEY": self.store.secret_key} if s3 else {}
        return {"LARDER_REPOSITORY": repository, "LARDER_PASSWORD": PASSWORD, "LARDER_CACHE_DIR": str(self.work / "cache"),
                "LARDER_STATE": str(self.work / "state"), **keys}

    def init(self):
        return [self.run("init")]

    def backup(self, source, label):
        return self.run("backup", "--json", "--tag", label, source)

    def backup_full(self, source, label):
        return self.run("backup", "--json", "--force", "--tag", label, source)

    def restore(self, label, target):
        # A label used twice means the newer one, as everywhere.
        found = [v for v in json.loads(self.ask("snapshots", "--json")) if label in (v.get("tags") or [])]
        newest = max(found, key=lambda v: v["time"])
        return self.run("restore", newest["id"], "--target", target, "--json")

    def forget(self, keep):
        return self.run("forget", "--json", "--keep-last", keep, "--prune")

    def maintain(self):
        return self.run("optimize", "--json")

    def versions(self):
        return self.run("snapshots")

    def facts(self, output):
        summary = next((row for row in json_lines(output) if row.get("message_type") == "summary"), {})
        kinds = {key.removeprefix("requests_"): count for key, count in summary.items() if key.startswith("requests_")}
        return {"requests": summary["requests"], "requests_by_kind": kinds} if "requests" in summary else {}


TOOL = Larder
