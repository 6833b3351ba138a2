"""Larder with a key file, as on a machine that backs up by a timer: no password is stretched at each start."""

from tools.larder import Larder


class LarderKey(Larder):
    name = "larder-key"

    @property
    def key_file(self):
        return self.work / "machine.key"

    def env(self):
        return {**super().env(), "LARDER_KEY_FILE": str(self.key_file)} if self.key_file.exists() else super().env()

    def init(self):
        return [*super().init(), self.run("key", "add", "--file", self.key_file)]


TOOL = LarderKey
