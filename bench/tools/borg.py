"""Borg 1: chunks of about 2 MiB, segments of a local or ssh repository, one thread."""

from tools.base import PASSWORD, Tool


class Borg(Tool):
    name = "borg"
    binary = "borg"
    compression = "lz4"
    options = "repokey-blake2; lz4 (its default)"

    def env(self):
        return {
            "BORG_REPO": str(self.store.path),
            "BORG_PASSPHRASE": PASSWORD,
            "BORG_BASE_DIR": str(self.work / "base"),
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
        }

    def init(self):
        return [self.run("init", "--encryption", "repokey-blake2")]

    # Backed up as `.`, so that a restore puts the content straight into the target.
    def backup(self, source, label):
        return self.run("create", "--compression", self.compression, f"::{label}", ".", cwd=source)

    def backup_full(self, source, label):
        return self.run("create", "--compression", self.compression, "--files-cache", "rechunk,ctime", f"::{label}", ".", cwd=source)

    def restore(self, label, target):
        return self.run("extract", "--numeric-ids", f"::{label}", cwd=target)

    def versions(self):
        return self.run("list")


TOOL = Borg
