"""kopia: content-defined chunks of about 4 MiB, an index of its own, maintenance inside the client.

kopia compresses nothing unless told to. With that default its sizes could not be compared with anybody's, so the policy its
manual recommends for speed is set.
"""

import json

from tools.base import PASSWORD, Tool


class Kopia(Tool):
    name = "kopia"
    binary = "kopia"
    options = "compression policy zstd-fastest (default: none); no automatic maintenance"
    stores = ("local", "s3")

    def env(self):
        return {
            "KOPIA_PASSWORD": PASSWORD,
            "KOPIA_CONFIG_PATH": str(self.work / "repository.config"),
            "KOPIA_CACHE_DIRECTORY": str(self.work / "cache"),
            "KOPIA_LOG_DIR": str(self.work / "logs"),
            "KOPIA_CHECK_FOR_UPDATES": "false",
        }

    def init(self):
        if self.store.kind == "s3":
            host = self.store.endpoint.partition("//")[2]
            keys = ["--access-key", self.store.access_key, "--secret-access-key", self.store.secret_key]
            where = ["s3", "--bucket", self.store.bucket, "--prefix", "repo/", "--endpoint", host, "--disable-tls", *keys]
        else:
            self.store.path.mkdir()
            where = ["filesystem", "--path", self.store.path]
        return [self.run("repository", "create", *where), self.run("policy", "set", "--global", "--compression", "zstd-fastest")]

    def backup(self, source, label):
        return self.run("snapshot", "create", "--no-progress", "--no-auto-maintenance", "--tags", f"version:{label}", source)

    def backup_full(self, source, label):
        return self.run(
            "snapshot", "create", "--no-progress", "--no-auto-maintenance", "--force-hash", "100", "--tags", f"version:{label}", source
        )

    def restore(self, label, target):
        found = json.loads(self.ask("snapshot", "list", "--json", "--all", "--tags", f"version:{label}"))
        return self.run("snapshot", "restore", "--no-progress", max(found, key=lambda snapshot: snapshot["startTime"])["id"], target)

    def versions(self):
        return self.run("snapshot", "list", "--all")


TOOL = Kopia
