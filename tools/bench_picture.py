#!/usr/bin/env python3
"""Draws the picture of the README from one result of the bench: what all backups of a data set took, beside the peers.

    tools/bench_picture.py bench/results/db-full-local-….json docs/pictures/bench.svg
"""

import json
import sys
from html import escape

BAR, GAP, LEFT, WIDTH, PANEL = 20, 6, 78, 150, 270
COLOURS = {"larder": "#c2410c"}
OTHERS = "#a8b3bf"


def totals(result):
    """Of each tool: wall seconds, CPU seconds, gigabytes of repository after all versions; None if a version is missing."""
    labels = [version["label"] for version in result["data"]]
    found = {}
    for tool in result["tools"]:
        runs = {}
        for record in result["records"]:
            if record["tool"] == tool and record["step"] == "backup" and record["exit"] == 0:
                runs.setdefault(record["label"], []).append(record)
        if all(label in runs for label in labels):
            # The median of repetitions, as in the tables.
            def middle(label, key):
                values = sorted(run[key] for run in runs[label])
                return values[len(values) // 2]

            wall, cpu = (sum(middle(label, key) for label in labels) for key in ("wall", "cpu"))
            found[tool] = (wall, cpu, middle(labels[-1], "repo_bytes") / 1e9)
    return found


def panel(left, title, unit, values):
    """One group of bars, shortest first."""
    most = max(values.values())
    lines = [f'<text x="{left + LEFT}" y="58" class="h">{escape(title)}</text>']
    for number, (tool, value) in enumerate(sorted(values.items(), key=lambda pair: pair[1])):
        y = 70 + number * (BAR + GAP)
        length = value / most * (WIDTH - 42)
        colour = COLOURS.get(tool, OTHERS)
        lines += [
            f'<text x="{left + LEFT - 6}" y="{y + 14}" class="e">{escape(tool)}</text>',
            f'<rect x="{left + LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{left + LEFT + length + 5:.1f}" y="{y + 14}">{value:.3g} {unit}</text>',
        ]
    return lines


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        result = json.load(file)
    found = totals(result)
    size = sum(version["bytes"] for version in result["data"]) / 1e9
    heading = f'{len(result["data"])} versions of databases, {size:.1f} GB in all, on {result["machine"]["cores"]} cores'
    height = 84 + len(found) * (BAR + GAP)
    style = "text{font:12px sans-serif;fill:#222}.t{font-size:15px;font-weight:600}.h{font-weight:600}.e{text-anchor:end}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * PANEL}" height="{height}" viewBox="0 0 {3 * PANEL} {height}">',
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="14" y="28" class="t">{escape(heading)}: shorter is better</text>',
    ]
    for number, (title, unit) in enumerate([("time", "s"), ("CPU time", "s"), ("repository after all", "GB")]):
        lines += panel(number * PANEL, title, unit, {tool: values[number] for tool, values in found.items()})
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["</svg>", ""]))


if __name__ == "__main__":
    main()
