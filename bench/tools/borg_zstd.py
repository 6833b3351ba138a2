"""Borg with zstd instead of its default lz4, to compare sizes with the tools that use zstd."""

from tools.borg import Borg


class BorgZstd(Borg):
    name = "borg-zstd"
    compression = "zstd,3"
    options = "repokey-blake2; zstd,3"


TOOL = BorgZstd
