"""Gets rid of folders without slowing down what is measured next.

ext4 does not give out an inode again for a minute after its file was deleted, and looks past all such inodes for every new
file: after deleting two trees of 8,600 files, `cp -a` of one takes 1.4 to 3.5 s of CPU instead of 0.2. So folders of many
files are only moved aside, and deleted when the run is over, or, when they take too much room, in one go with a pause after
it. A run that starts too soon after another one has deleted waits, too.
"""

import fcntl
import os
import shutil
import sys
import time

MANY_FILES = 300
ROOM_BYTES = 12 << 30
FORGOTTEN_SECONDS = 65


class Trash:
    """Discarded folders wait in `work/trash`, on the file system of the measured ones.

    Takes the folder `work` over: what an earlier run left there is deleted first. One run at a time holds a folder.
    """

    def __init__(self, work):
        work.parent.mkdir(parents=True, exist_ok=True)
        self.lock = open(work.parent / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another run is using {work.parent}: wait for it, or choose another folder with --work") from None
        self.work = work
        self.folder = work / "trash"
        self.deleted_at = work.parent / "deleted-at"
        self.count = 0
        self.bytes = 0
        if work.exists():
            self.delete(work)
        self.folder.mkdir(parents=True)

    def discard(self, path):
        """Afterwards there is nothing at `path`, which may have been missing before."""
        files = size = 0
        for parent, _, names in os.walk(path):
            files += len(names)
            size += sum(os.lstat(os.path.join(parent, name)).st_size for name in names)
        if files <= MANY_FILES:
            shutil.rmtree(path, ignore_errors=True)
            return
        self.count += 1
        os.rename(path, self.folder / str(self.count))
        self.bytes += size
        if self.bytes > ROOM_BYTES:
            self.empty()
            self.wait()

    def empty(self):
        self.delete(self.folder)
        self.folder.mkdir()
        self.count = self.bytes = 0

    def delete(self, folder):
        """Deletes for good, and notes when, for whoever measures next on this file system."""
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()
        self.deleted_at.touch()

    def wait(self):
        """Waits until the file system has forgotten the last mass deletion."""
        try:
            left = FORGOTTEN_SECONDS - (time.time() - self.deleted_at.stat().st_mtime)
        except FileNotFoundError:
            return
        if left > 0:
            print(f"waiting {left:.0f} s for the file system to forget deleted inodes", file=sys.stderr, flush=True)
            time.sleep(min(left, FORGOTTEN_SECONDS))
