"""Medians over the repetitions, ratios against Larder and the best peer, as a Markdown page beside the raw JSON."""

import datetime
import json
import os
import platform
from collections import defaultdict
from statistics import median

# Above this share of foreign CPU a median is marked: the machine was not ours.
NOISY = 0.15
OURS = "larder"
NOT_A_PEER = {OURS, "cp -a"}


def machine():
    """What the numbers were measured on."""
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {"cpu": model, "cores": os.cpu_count(), "memory_gb": round(memory / 1e6, 1), "kernel": platform.release()}


def group(records):
    """step -> label -> tool -> medians, in order of appearance."""
    runs = defaultdict(list)
    for record in records:
        runs[record["step"], record["label"], record["tool"]].append(record)
    out = {}
    for (step, label, tool), rows in runs.items():
        out.setdefault(step, {}).setdefault(label, {})[tool] = summary(rows)
    return out


def summary(rows):
    """The median of every figure of some repetitions of one thing."""
    figures = {"runs": len(rows), "bytes": rows[0]["bytes"]}
    for key in ("wall", "cpu", "sys", "rss", "rss_tree", "flush", "noise", "written", "repo_bytes", "repo_objects", "requests"):
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            figures[key] = median(values)
    figures["lesser"] = rows[-1].get("lesser")
    return figures


def totals(records, step):
    """Per tool: the sum over all labels of a step, median of the repetitions that have every label."""
    labels = {record["label"] for record in records if record["step"] == step}
    runs = defaultdict(list)
    for record in records:
        if record["step"] == step:
            runs[record["tool"], record["repetition"]].append(record)
    per_tool = defaultdict(list)
    for (tool, _), rows in runs.items():
        if {row["label"] for row in rows} == labels:
            whole = {"bytes": sum(row["bytes"] for row in rows)}
            for key in ("wall", "cpu", "sys", "flush", "written"):
                whole[key] = sum(row[key] for row in rows)
            for key in ("rss", "rss_tree"):
                whole[key] = max(row[key] for row in rows)
            whole["noise"] = max(row["noise"] for row in rows)
            for key in ("repo_bytes", "repo_objects"):
                if key in rows[-1]:
                    whole[key] = rows[-1][key]
            if all(row.get("requests") is not None for row in rows):
                whole["requests"] = sum(row["requests"] for row in rows)
            per_tool[tool].append(whole)
    return {tool: summary(rows) for tool, rows in per_tool.items()}


def cell(value, digits=2, scale=1.0):
    return "-" if value is None else f"{value / scale:,.{digits}f}"


def apart(row, digits, scale=1.0):
    """User and system time: the median of the system's, and the rest of the median of all."""
    if row.get("sys") is None:
        return "-"
    return f"{cell(row['cpu'] - row['sys'], digits, scale)} + {cell(row['sys'], digits, scale)}"


def main_table(tools):
    """One row a tool: what it cost, absolutely and as a multiple of Larder's."""
    ours = tools.get(OURS)
    lines = [
        "| tool | wall s | CPU s | user + sys | MB/s | CPU s/GB | user + sys | peak MB | tree MB | flush s | repo MB | objects | requests "
        "| wall x | CPU x | repo x | noise |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for tool, row in tools.items():
        size = row["bytes"]
        ratios = [cell(row[key] / ours[key]) if ours and row.get(key) and ours.get(key) else "-" for key in ("wall", "cpu", "repo_bytes")]
        cells = [
            cell(row["wall"], 3 if row["wall"] < 10 else 1),
            cell(row["cpu"], 3 if row["cpu"] < 10 else 1),
            apart(row, 3 if row["cpu"] < 10 else 1),
            cell(size / row["wall"], 0, 1e6) if size else "-",
            cell(row["cpu"] / size * 1e9) if size else "-",
            apart(row, 2, size / 1e9) if size else "-",
            cell(row["rss"], 0, 1e6),
            cell(row["rss_tree"], 0, 1e6),
            cell(row["flush"], 2),
            cell(row.get("repo_bytes"), 1, 1e6),
            cell(row.get("repo_objects"), 0),
            cell(row.get("requests"), 0),
            *ratios,
            f"{row['noise']:.0%}{' (!)' if row['noise'] > NOISY else ''}",
        ]
        lines.append(f"| {tool} | " + " | ".join(cells) + " |")
    return lines


def against_best_peer(tools):
    """How Larder stands against the best of the others, figure by figure."""
    ours = tools.get(OURS)
    if not ours:
        return []
    out = []
    for key, word in (("wall", "wall"), ("cpu", "CPU"), ("repo_bytes", "repository"), ("rss_tree", "peak memory")):
        peers = {tool: row[key] for tool, row in tools.items() if tool not in NOT_A_PEER and row.get(key)}
        if peers and ours.get(key):
            best = min(peers, key=peers.get)
            out.append(f"{word} {ours[key] / peers[best]:.2f} of {best}'s")
    if "cp -a" in tools:
        out.append(f"wall {ours['wall'] / tools['cp -a']['wall']:.2f} of cp -a's")
    return ["", "Larder against the best peer: " + ", ".join(out) + "."] if out else []


def version_table(per_label, tools):
    """One row a version and one column a tool: wall seconds, CPU seconds a GB, repository megabytes."""
    lines = ["| version | " + " | ".join(tools) + " |", "|---|" + "---:|" * len(tools)]
    for label, by_tool in per_label.items():
        cells = []
        for tool in tools:
            row = by_tool.get(tool)
            if row is None:
                cells.append("-")
                continue
            text = cell(row["wall"])
            if row["bytes"]:
                text += f" / {row['cpu'] / row['bytes'] * 1e9:.2f}"
            if row.get("repo_bytes"):
                text += f" / {row['repo_bytes'] / 1e6:.1f}"
            cells.append(text)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def markdown(run):
    """The page of one run."""
    settings, records = run["settings"], run["records"]
    host = run["machine"]
    lines = [
        f"# {settings['set']}, {settings['scale']}, store {settings['store']}, {run['date']}",
        "",
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB, kernel {host['kernel']}; medians of {settings['repeat']}; "
        f"caches {'dropped before every step' if settings['drop_caches'] else 'warm'}; load {run['load'][0]:.1f} before, {run['load'][1]:.1f} after.",
        "",
        "| tool | version | options |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {facts['version']} | {facts['options']} |" for name, facts in run["tools"].items()]
    grouped = group(records)
    for step, per_label in grouped.items():
        tools = list(dict.fromkeys(tool for by_tool in per_label.values() for tool in by_tool))
        if step in ("backup", "pass") and len(per_label) > 1:
            first = next(iter(per_label))
            lines += ["", f"## {step}, first version", "", *main_table(per_label[first]), *against_best_peer(per_label[first])]
            whole = totals(records, step)
            lines += ["", f"## {step}, all versions", "", *main_table(whole), *against_best_peer(whole)]
            lines += ["", "Version by version: wall s / CPU s per GB / repository MB after it.", "", *version_table(per_label, tools)]
            continue
        for label, by_tool in per_label.items():
            lines += ["", f"## {step} {label}", "", *main_table(by_tool), *against_best_peer(by_tool)]
            lesser = {tool: row["lesser"] for tool, row in by_tool.items() if row.get("lesser")}
            if lesser:
                lines += ["", "Not brought back: " + "; ".join(f"{tool}: {json.dumps(what)}" for tool, what in lesser.items()) + "."]
    if run["failures"]:
        lines += ["", "## Failures", ""] + [f"- {words}" for words in run["failures"]]
    return "\n".join(lines) + "\n"


def write(run, folder):
    """Writes the JSON and the Markdown page; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = run["settings"]
    stem = f"{settings['set']}-{settings['scale']}-{settings['store']}-{run['date'].replace(':', '').replace(' ', '-')}"
    (folder / f"{stem}.json").write_text(json.dumps(run, indent=1) + "\n")
    page = folder / f"{stem}.md"
    page.write_text(markdown(run))
    return page


def now():
    return datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
