#!/usr/bin/env python3
"""Tables of what `run.py` and `peers.py` printed, and a picture.

    bench/fleet/tables.py run.json peers.json [--pictures FOLDER]
"""

import argparse
import json
import pathlib

import draw

MB = 1e6
PAPER = 0.944
# Bytes of a question about a chunk, and those of a chunk in the mean. Newer programs pack questions. Then the scan tells their
# number, which has some 36 bytes for each.
QUESTION, CHUNK, SCANNED = 28, 4096, 36


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    rows = [json.loads(line) for file in args.files for line in file.read_text().splitlines() if line.startswith("{")]
    days, tools = [row for row in rows if "packages" in row], [row for row in rows if "tool" in row]
    if days:
        content(days)
        levels(days)
        costs(days)
        exchanged(days)
        if args.pictures:
            picture(days, args.pictures)
    if tools:
        peers(tools)


def content(days):
    print("| day | packages | content, MB | new chunks | exact | all bytes stored | metadata | removed today | removed so far |")
    print("|---:|" + "---:|" * 8)
    before, stored = {"chunks": 0, "exact": 0}, 0
    for row in days:
        exact = f"{(row['exact'] - before['exact']) / MB:,.0f}" if "exact" in row else ""
        chunks = f"{(row['chunks'] - before['chunks']) / MB:,.0f}" if "chunks" in row else f"{row['new'] / MB:,.0f}"
        metadata, stored = row["metadata"] - stored, row["metadata"]
        before = row
        print(f"| {row['day']} | {row['packages']} | {row['content'] / MB:,.0f} | {chunks} | {exact} | {row['added'] / MB:,.0f} | "
              f"{metadata / MB:.1f} | {row['removed_today'] * 100:.1f} % | {row['removed'] * 100:.2f} % |")
    print()


def levels(days):
    """The published formula: what is in unchanged segments, and what of the rest is known. Questions that repeat count once."""
    print("| day | level 1, unchanged | level 2, known of the rest | both |\n|---:|---:|---:|---:|")
    for row in days:
        sent, scanned = row["stages"]["send"]["output"], row["stages"]["scan"]["output"]
        questions = sent / QUESTION if scanned < 2 * sent else scanned / SCANNED
        asked = min(1, questions * CHUNK / row["content"])
        new = row["new"] / row["content"]
        print(f"| {row['day']} | {(1 - asked) * 100:.1f} % | {(1 - min(1, new / asked)) * 100:.1f} % | {(1 - new) * 100:.1f} % |")
    print()


def costs(days):
    print("| day | wall s | CPU s | GB/s a core | peak MB | pass, CPU s | one by one: wall s | CPU s | peak MB | pass, CPU s | stored, MB |")
    print("|---:|" + "---:|" * 10)
    for row in days:
        cells = [row["day"], f"{row['wall']:.1f}", f"{row['cpu']:.1f}", f"{row['content'] / row['cpu'] / 1e9:.2f}",
                 f"{row['rss'] / MB:.0f}", f"{row['pass']['cpu']:.1f}"]
        if other := row.get("one_by_one"):
            cells += [f"{other['wall']:.1f}", f"{other['cpu']:.1f}", f"{other['rss'] / MB:.0f}", f"{other['pass']['cpu']:.1f}", f"{other['added'] / MB:,.0f}"]
        print("| " + " | ".join(map(str, cells)) + " |")
    print()


def exchanged(days):
    print("| day | " + " | ".join(f"{stage}: s, MB out, peak MB" for stage in days[0]["stages"]) + " |")
    print("|---:|" + "---:|" * len(days[0]["stages"]))
    for row in days:
        cells = [f"{stage['seconds']:.1f}, {stage['output'] / MB:.1f}, {stage['rss'] / MB:.0f}" for stage in row["stages"].values()]
        print(f"| {row['day']} | " + " | ".join(cells) + " |")
    print()


def peers(rows):
    last = max(row["day"] for row in rows)
    for day, name in ((0, "First day"), (last, "Second day")):
        print(f"{name}:\n\n| program | wall s | CPU s | peak MB | stored, MB | repository, MB |\n|---|" + "---:|" * 5)
        for row in rows:
            if row["day"] == day:
                print(f"| {row['tool']} | {row['wall']:.0f} | {row['cpu']:.1f} | {row['rss'] / MB:.0f} | {row['added'] / MB:,.0f} | {row['repository'] / MB:,.0f} |")
        print()


def picture(days, folder):
    folder.mkdir(parents=True, exist_ok=True)
    removed = draw.lines("Share of the content that is removed, all stored bytes counted", "day", "percent", [
        ("so far", [(row["day"], row["removed"] * 100) for row in days]),
        ("of this day", [(row["day"], row["removed_today"] * 100) for row in days]),
        ("published: 94.4 %", [(row["day"], PAPER * 100) for row in days])])
    (folder / "removed.svg").write_text(removed)


if __name__ == "__main__":
    main()
