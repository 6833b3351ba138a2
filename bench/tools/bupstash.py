"""bupstash: content-defined chunks of about 1 MiB, zstd, a second process that owns the repository; key files, no passwords."""

from tools.base import Tool


class Bupstash(Tool):
    name = "bupstash"
    binary = "bupstash"
    options = "key file instead of a password; no xattrs (its default); restore with --ownership"

    def env(self):
        return {
            "BUPSTASH_REPOSITORY": str(self.store.path),
            "BUPSTASH_KEY": str(self.work / "key"),
            "BUPSTASH_SEND_LOG": str(self.work / "send-log"),
            "BUPSTASH_QUERY_CACHE": str(self.work / "query-cache"),
        }

    def init(self):
        return [self.run("new-key", "-o", self.work / "key"), self.run("init", "-q")]

    def backup(self, source, label):
        return self.run("put", "-q", f"version={label}", "::", source)

    def backup_full(self, source, label):
        return self.run("put", "-q", "--no-stat-caching", f"version={label}", "::", source)

    def restore(self, label, target):
        return self.run("restore", "-q", "--ownership", "--into", target, f"version={label}")

    def versions(self):
        return self.run("list", "-q")


TOOL = Bupstash
