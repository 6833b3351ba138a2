"""Shows the versions of a data set to the tools: one folder that always has the same path, brought from version to version.

Sets of files appear as hard links, so nothing is copied and times stay; sets of releases `as a tree` are updated in place, as
a user's working copy is: what did not change keeps its inode and its time.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path

from sets import releases

# Sets whose versions are tars to be unpacked over one another, and the set that holds those tars.
UNPACKED = {"trees": "tars", "tree8600": "tree8600"}


def data_set(name):
    """The set on disk that a `--set` reads."""
    return UNPACKED.get(name, name)


class Source:
    """The folder all tools back up. `first` is a copy of the first version, kept to compare restores with."""

    def __init__(self, set_name, versions, work, trash):
        self.trash = trash
        self.unpacked = set_name in UNPACKED
        self.versions = versions
        self.path = work / "source"
        self.first = work / "source-first"

    def show(self, index):
        """Brings the folder to version `index` (from 0). Returns the bytes a tool has to look at."""
        version = self.versions[index]
        if not self.unpacked:
            self.trash.discard(self.path)
            link_tree(version.path, self.path)
            size = version.bytes
        else:
            if index == 0:
                self.trash.discard(self.path)
            size = releases.update_tree(next(version.path.glob("*.tar")), index + 1, self.path)
        if index == 0:
            self.trash.discard(self.first)
            if self.unpacked:
                subprocess.run(["cp", "-a", self.path, self.first], check=True)
            else:
                link_tree(version.path, self.first)
        return size

    def warm(self):
        """Reads everything once, so that the first tool does not pay for what the others find in the page cache."""
        for folder, _, files in os.walk(self.path):
            for name in files:
                with open(Path(folder) / name, "rb", buffering=0) as file:
                    while file.read(4 << 20):
                        pass


def link_tree(old, new):
    """A copy of a folder whose files are hard links, or copies where the file system cannot link."""

    def link(source, target):
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copy2(source, target)

    shutil.copytree(old, new, copy_function=link)
