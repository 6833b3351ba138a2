#!/usr/bin/env python3
"""Makes figures 4 and 5 of the paper (dedupv1, section IV): throughput by index storage, and shares of time.

    cargo build --profile sim -p larder-volume --example generations
    figures.py --work /disk/work [--mib 1024] [--entries 16000000] [--repeat 3] [--json FILE] [--pictures FOLDER]
    figures.py --from FILE [--pictures FOLDER]

The example `generations` writes both generations in one process, so the network is left out. `--entries` adds that many
chunks to the index, so that it is larger than what one generation touches. Cold setups (root) begin each generation with
empty caches of the system; their filters of runs take no memory, so each new chunk costs a read. Setups take turns, and
each number is a median. `throughput.svg` and `shares.svg` are figures 4 and 5. Parts of several batches run at the same
time, so shares are those of their sum, and not of the time of a clock as in the paper.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
from html import escape
from pathlib import Path

ALLOCATOR = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
STEPS = {"first generation": "first", "second, to new volumes": "second"}
# Name, whether the index is large, arguments.
SETUPS = [
    ("disk, only index", True, ["--cold", "--index-memory", "0", "--filters", "index"]),
    ("disk, no caches", True, ["--cold", "--index-memory", "0", "--filters", "zero,mac,index"]),
    ("disk, all filters", True, ["--cold"]),
    ("memory, only index", True, ["--filters", "index"]),
    ("memory, all filters", True, []),
    ("small index", False, []),
]
# Parts of the time of commits, in their order from below, with colours.
PARTS = {
    "mappings": "#94a3b8", "cutting": "#0f766e", "zero": "#d4d4d8", "bloom": "#facc15", "block": "#84cc16", "cache": "#22c55e",
    "index": "#c2410c", "storing": "#1d4ed8", "syncing": "#a855f7", "publishing": "#525252",
}


def run(program, work, args, mib, entries):
    """One line of JSON for each generation."""
    shutil.rmtree(work, ignore_errors=True)
    command = [str(program), str(work), "--json", "--mib", str(mib), "--until", "2", *args]
    if entries:
        command += ["--entries", str(entries)]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ALLOCATOR})
    shutil.rmtree(work, ignore_errors=True)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr.strip()}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def parts(step):
    """Milliseconds of each part. Filters take the place of `asking`."""
    found = {name: ms for name, ms in step["phases"].items() if name != "asking"}
    # Filters of whole blocks run in the threads of the writers too.
    found |= {filter["name"]: filter["ms"] for filter in step["filters"] if filter["name"] != "mac"}
    return {name: found.get(name, 0.0) for name in PARTS}


def rate(step):
    return step["bytes"] / step["seconds"] / 1e6


def medians(results):
    """Of each setup and generation: MB/s, CPU seconds a GB, and the share of each part in percent."""
    found = {}
    for setup, runs in results.items():
        for name, short in STEPS.items():
            steps = [step for steps in runs for step in steps if step["step"] == name]
            middle = lambda value: statistics.median(value(step) for step in steps)
            shares = {part: middle(lambda step: parts(step)[part] / sum(parts(step).values()) * 100) for part in PARTS}
            cpu = middle(lambda step: (step["user"] + step["system"]) / step["bytes"] * 1e9)
            found[setup, short] = (middle(rate), cpu, shares, middle(lambda step: step["page_misses"]))
    return found


def tables(found):
    setups = list(dict.fromkeys(setup for setup, _ in found))
    print("| index | first MB/s | second MB/s | CPU s/GB, first | second | pages read, first | second |")
    print("|---|" + "---:|" * 6)
    for setup in setups:
        (first, first_cpu, _, first_pages), (second, second_cpu, _, second_pages) = found[setup, "first"], found[setup, "second"]
        print(f"| {setup} | {first:,.0f} | {second:,.0f} | {first_cpu:.2f} | {second_cpu:.2f} | {first_pages:,.0f} | {second_pages:,.0f} |")
    print("\nShares of time in percent, first and second generation:\n")
    used = [part for part in PARTS if any(shares[part] >= 0.5 for _, _, shares, _ in found.values())]
    print("| index | " + " | ".join(used) + " |")
    print("|---|" + "---:|" * len(used))
    for setup in setups:
        pair = [found[setup, short][2] for short in STEPS.values()]
        print(f"| {setup} | " + " | ".join(f"{pair[0][part]:.0f}, {pair[1][part]:.0f}" for part in used) + " |")


BAR, SLOT, LEFT, TOP, HEIGHT = 34, 118, 56, 64, 260
STYLE = "text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}"


def picture(path, title, found, most, unit, bar):
    """Two bars for each setup. `bar` gives the pieces of one from below: height in `unit`, colour, and a title."""
    setups = list(dict.fromkeys(setup for setup, _ in found))
    width, below = LEFT + SLOT * len(setups) + 130, TOP + HEIGHT
    scale = HEIGHT / most
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{below + 50}" viewBox="0 0 {width} {below + 50}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="14" y="28" class="t">{escape(title)}</text>',
    ]
    for step in range(5):
        value = most * step / 4
        y = below - value * scale
        lines.append(f'<line x1="{LEFT}" x2="{width - 130}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="e">{value:,.0f}{unit}</text>')
    for number, setup in enumerate(setups):
        for second, short in enumerate(STEPS.values()):
            x, y = LEFT + SLOT * number + 20 + second * (BAR + 6), below
            for value, colour, label in bar(found[setup, short], second):
                y -= value * scale
                lines.append(f'<rect x="{x}" y="{y:.1f}" width="{BAR}" height="{value * scale:.1f}" fill="{colour}"><title>{escape(label)}</title></rect>')
        first, _, rest = setup.partition(", ")
        x = LEFT + SLOT * number + 20 + BAR + 3
        lines.append(f'<text x="{x}" y="{below + 18}" class="m">{escape(first)}</text>')
        lines.append(f'<text x="{x}" y="{below + 34}" class="m">{escape(rest)}</text>')
    return path, lines, width


def legend(lines, width, entries):
    for number, (colour, label) in enumerate(entries):
        y = TOP + number * 20
        lines.append(f'<rect x="{width - 116}" y="{y}" width="13" height="13" fill="{colour}"/>')
        lines.append(f'<text x="{width - 98}" y="{y + 11}">{escape(label)}</text>')
    return lines


def pictures(found, folder):
    folder.mkdir(parents=True, exist_ok=True)
    most = max(rate for rate, *_ in found.values())
    most = next(step for step in (400, 800, 1200, 1600, 2000, 4000, 8000) if step >= most)
    colours = ["#1d4ed8", "#c2410c"]
    throughput = lambda values, second: [(values[0], colours[second], f"{values[0]:,.0f} MB/s")]
    path, lines, width = picture(folder / "throughput.svg", "Throughput by where the index is, MB/s", found, most, "", throughput)
    legend(lines, width, [(colours[0], "first"), (colours[1], "second")])
    path.write_text("\n".join([*lines, "</svg>", ""]))
    shares = lambda values, _: [(values[2][part], colour, f"{part}: {values[2][part]:.0f} %") for part, colour in PARTS.items()]
    title = "Shares of the time of commits: first generation left, second right"
    path, lines, width = picture(folder / "shares.svg", title, found, 100, " %", shares)
    legend(lines, width, [(colour, part) for part, colour in reversed(PARTS.items())])
    path.write_text("\n".join([*lines, "</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path("target/sim/examples/generations"))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=16_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    if args.source:
        results = json.loads(args.source.read_text())
    else:
        results = {}
        for repetition in range(args.repeat):
            # Setups take turns, so that a disturbance hits all of them.
            turn = repetition % len(SETUPS)
            for name, is_large, words in SETUPS[turn:] + SETUPS[:turn]:
                steps = run(args.program, args.work, words, args.mib, args.entries if is_large else 0)
                results.setdefault(name, []).append(steps)
        results = {name: results[name] for name, *_ in SETUPS}
    found = medians(results)
    tables(found)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.pictures:
        pictures(found, args.pictures)


if __name__ == "__main__":
    main()
