"""The data sets: same seed, same bytes; trees are what the tars say, and only what changed looks changed."""

import io
import random
import shutil
import tarfile
import tempfile
import unittest
from pathlib import Path

from sets import database, image, releases


class Sets(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def tar(self, name, files):
        path = self.folder / name
        with tarfile.open(path, "w") as tar:
            for folder in sorted({str(parent) for file in files for parent in Path("top", file).parents} - {"."}):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for file, content in sorted(files.items()):
                entry = tarfile.TarInfo(f"top/{file}")
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
        return path

    def test_a_tree_follows_the_tars_and_unchanged_files_keep_time_and_inode(self):
        tree = self.folder / "tree"
        releases.update_tree(self.tar("1.tar", {"same": b"1", "changed": b"2", "gone/file": b"3", "x": b""}), 1, tree)
        before = {name: (tree / name).stat() for name in ("same", "changed")}
        second = {"same": b"1", "changed": b"5", "new/deep/file": b"6", "x/now-a-folder": b"7"}
        size = releases.update_tree(self.tar("2.tar", second), 2, tree)
        found = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}
        self.assertEqual(found, second)
        self.assertFalse((tree / "gone").exists())
        self.assertEqual(size, 4)
        same, changed = (tree / "same").stat(), (tree / "changed").stat()
        self.assertEqual((same.st_mtime_ns, same.st_ino), (before["same"].st_mtime_ns, before["same"].st_ino))
        self.assertGreater(changed.st_mtime_ns, before["changed"].st_mtime_ns)

    def test_a_database_version_depends_on_the_seed_only(self):
        pages = []
        for run in range(2):
            text = database.Text(random.Random("words"))
            path = self.folder / f"{run}.sqlite"
            last = database.create(path, 4 << 20, random.Random("one"), text)
            first, _ = database.page_hashes(path)
            database.change(path, 0.2, random.Random("two"), text, last)
            second, _ = database.page_hashes(path)
            self.assertTrue(0.5 < len(first & second) / len(second) < 0.97)
            pages.append(path.read_bytes())
        self.assertEqual(*pages)

    def test_edits_are_sparse_and_seeded(self):
        content = random.Random(1).randbytes(4 << 20)
        one, two = (image.edited(random.Random(2), content) for _ in range(2))
        self.assertEqual(one, two)
        self.assertNotEqual(one, content)
        kept = sum(content[at : at + 512] in one for at in range(0, len(content), 64 << 10))
        self.assertGreater(kept, 55)

    @unittest.skipUnless(shutil.which("debugfs") and shutil.which("mke2fs"), "needs e2fsprogs")
    def test_debugfs_errors_are_not_swallowed(self):
        (self.folder / "a").write_bytes(b"x")
        disk = self.folder / "disk.img"
        image.create(disk, 8 << 20, {"/d": {"a": str(self.folder / "a")}}, self.folder)
        image.debugfs(disk, ["rm /d/a"])
        with self.assertRaises(SystemExit):
            image.debugfs(disk, ["rm /d/a"])


if __name__ == "__main__":
    unittest.main()
