"""The harness must not flatter or blame a tool: its accounting, its comparison and its ratios.

    python3 -m unittest discover -s bench/tests -t bench
"""

import os
import sys
import tempfile
import unittest
from pathlib import Path

from harness import compare, measuring, report
from harness.measuring import Command, CommandFailed
from harness.trash import MANY_FILES, Trash


def python(code):
    return Command([sys.executable, "-I", "-c", code])


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)


class Measuring(Folder):
    def test_cpu_of_an_orphaned_grandchild_is_counted(self):
        # The tool ends at once; what it left behind works on. bupstash's server process is such a case.
        burn = "import time\\nend = time.process_time() + 0.6\\nwhile time.process_time() < end: pass"
        code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-c', '{burn}'])"
        cost = measuring.run(python(code), {}, self.folder)
        self.assertGreater(cost.cpu, 0.55)

    def test_peak_memory_is_the_commands_own(self):
        ballast = bytearray(200 << 20)
        small = measuring.run(python("pass"), {}, self.folder)
        large = measuring.run(python("x = b'x' * (90 << 20)"), {}, self.folder)
        self.assertLess(small.rss, 60 << 20, "the memory of the harness was counted")
        self.assertGreater(large.rss, 90 << 20)
        del ballast

    def test_memory_of_two_processes_is_summed(self):
        hold = "import time; x = b\"x\" * (60 << 20); time.sleep(0.5)"
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', '{hold}'])"
        cost = measuring.run(python(f"y = b'y' * (60 << 20); {code}"), {}, self.folder)
        self.assertGreater(cost.rss_tree, 120 << 20)
        self.assertLess(cost.rss, 100 << 20)

    def test_a_failing_command_is_an_error_with_its_words(self):
        with self.assertRaisesRegex(CommandFailed, "exit 3: no such thing"):
            measuring.run(python("import sys; print('no such thing', file=sys.stderr); sys.exit(3)"), {}, self.folder)

    def test_settings_of_the_user_do_not_reach_the_tool(self):
        os.environ["RESTIC_REPOSITORY"] = "/somewhere"
        self.addCleanup(os.environ.pop, "RESTIC_REPOSITORY")
        cost = measuring.run(python("import os; print(sorted(os.environ))"), {"MINE": "1"}, self.folder)
        self.assertIn("MINE", cost.output)
        self.assertNotIn("RESTIC", cost.output)


class Compare(Folder):
    def setUp(self):
        super().setUp()
        for name in ("one", "two"):
            top = self.folder / name
            (top / "inner").mkdir(parents=True)
            (top / "inner" / "file").write_bytes(b"a" * 10_000_000)
            (top / "link").symlink_to("inner/file")
            os.utime(top / "inner" / "file", ns=(1, 1_000_000_007))
            for path in (top / "inner", top / "link"):
                os.utime(path, ns=(1, 5), follow_symlinks=False)
        self.one, self.two = self.folder / "one", self.folder / "two"

    def test_equal_trees(self):
        self.assertEqual(compare.compare(self.one, self.two), ([], {}))

    def test_one_changed_byte_far_inside(self):
        with open(self.two / "inner" / "file", "r+b") as file:
            file.seek(9_999_999)
            file.write(b"b")
        self.assertEqual(compare.compare(self.one, self.two)[0], ["another content: inner/file"])

    def test_missing_added_and_retargeted(self):
        (self.two / "inner" / "file").rename(self.two / "inner" / "other")
        (self.two / "link").unlink()
        (self.two / "link").symlink_to("elsewhere")
        serious, _ = compare.compare(self.one, self.two)
        self.assertEqual(serious, ["missing: inner/file", "not in the source: inner/other", "another target: link"])

    def test_lesser_differences_are_counted_by_kind(self):
        (self.two / "inner" / "file").chmod(0o600)
        os.utime(self.two / "inner" / "file", ns=(1, 1_000_000_000))
        os.utime(self.two / "inner", ns=(1, 6))
        self.assertEqual(compare.compare(self.one, self.two), ([], {"entry mode": 1, "entry time": 1, "folder time": 1}))


class Report(unittest.TestCase):
    def row(self, tool, repetition, label, wall, repo):
        zero = dict.fromkeys(("sys", "flush", "written", "noise", "rss", "rss_tree"), 0)
        base = {"tool": tool, "step": "backup", "repetition": repetition, "label": label, "bytes": 10**9}
        return {**zero, **base, "wall": wall, "cpu": wall * 2, "rss_tree": 1, "repo_bytes": repo}

    def test_totals_add_versions_and_take_the_median_of_repetitions(self):
        rows = [self.row("larder", rep, label, wall, 50) for rep, wall in ((1, 1.0), (2, 3.0), (3, 2.0)) for label in ("v01", "v02")]
        total = report.totals(rows, "backup")["larder"]
        self.assertEqual((total["wall"], total["cpu"], total["bytes"], total["runs"]), (4.0, 8.0, 2 * 10**9, 3))

    def test_a_repetition_without_every_version_does_not_count(self):
        rows = [self.row("restic", 1, "v01", 1.0, 1), self.row("restic", 2, "v01", 1.0, 1), self.row("restic", 2, "v02", 5.0, 1)]
        self.assertEqual(report.totals(rows, "backup")["restic"]["runs"], 1)

    def test_the_best_peer_is_chosen_per_figure_and_cp_is_none(self):
        rows = [self.row("larder", 1, "v01", 2.0, 50), self.row("fast", 1, "v01", 4.0, 200), self.row("small", 1, "v01", 8.0, 100)]
        rows.append(self.row("cp -a", 1, "v01", 1.0, None))
        text = " ".join(report.against_best_peer(report.group(rows)["backup"]["v01"]))
        self.assertIn("wall 0.50 of fast's", text)
        self.assertIn("repository 0.50 of small's", text)
        self.assertIn("wall 2.00 of cp -a's", text)


class TrashKeepsManyFiles(Folder):
    def test_few_files_go_at_once_and_many_only_aside(self):
        trash = Trash(self.folder / "work")
        for name, count in (("few", 3), ("many", MANY_FILES + 1)):
            (self.folder / "work" / name).mkdir()
            for number in range(count):
                (self.folder / "work" / name / str(number)).touch()
            trash.discard(self.folder / "work" / name)
            self.assertFalse((self.folder / "work" / name).exists())
        self.assertEqual(len(list((self.folder / "work" / "trash").iterdir())), 1)
        trash.empty()
        self.assertEqual(list((self.folder / "work" / "trash").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
