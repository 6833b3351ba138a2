#!/usr/bin/env python3
"""Checks the documentation: length of sentences and lines, links, words, and agreement with the program.

    docs/check.py                       the prose of the covered files
    docs/check.py --larder PATH         also the reference against `PATH VERB --help`
    docs/check.py --mean FILE...        only the mean length of a sentence of each file

Code blocks, inline code and tables are no sentences. A covered file fails on a sentence of more than 25 words, a line of
more than 100 columns outside of tables and long links, a link that leads nowhere, and a word of HOUSE's left column.
Messages quoted in docs/guide/troubleshooting.md must be in the source. docs/dependencies.md must name every direct dependency,
and only those. Standard library only.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COVERED = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".github/**/*.md", "docs/gnode.md",
           "docs/lifecycle.md", "docs/dependencies.md", "docs/guide/*.md", "docs/decisions/template.md", "docs/decisions/001[5-9]-*.md"]
NOT_YET = ["docs/concurrency.md", "docs/format.md", "docs/threat-model.md", "docs/decisions/00*.md", "bench/*.md", "fuzz/README.md", "tools/README.md"]
WORDS_MAX, COLUMNS_MAX = 25, 100

# Each is the old word of something that has a standard one.
FORBIDDEN = [
    r"giv(?:e|es|ing|en) (?:it |them |that |this )?up", r"gave (?:it |them |that |this )?up", r"anew", r"re-?layout",
    r"laid out", r"lay(?:s|ing)? out", r"thought dead", r"fenced off", r"com(?:e|es|ing) upon", r"came upon",
    r"com(?:e|es) to lie", r"so many", r"taken? into the index", r"takes? in new", r"doomed", r"distrusted",
    r"is led to", r"are led to", r"led chunks?", r"lead on", r"carr(?:y|ied|ying) out", r"lanes", r"compaction of versions",
    r"disorder", r"disordered", r"index_made_anew", r"making anew", r"whoever", r"nobody knows", r"that is no damage",
    r"strangers", r"standings?", r"winners", r"surroundings", r"struggl(?:e|es|ing)", r"sightings?", r"full vision",
    r"given_up", r"GiveUp\w*", r"settle[sd]?", r"gone over", r"to and fro", r"lies", r"has its turn",
]
OPENERS = re.compile(r"^(?:What|Whoever|Of which|Whatever)\b(?!.*\?$)")


def paragraphs(text):
    """Prose of a Markdown text: (line number, text) of each paragraph and list item."""
    fenced, lines, start, found = False, [], 0, []

    def flush():
        if lines:
            found.append((start, " ".join(lines)))
            lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip().lstrip("> ").strip()
        if bare.startswith("```"):
            fenced = not fenced
            flush()
        elif fenced or not bare or bare.startswith(("|", "#", "<", "![")) or re.fullmatch(r"[-=*]{3,}", bare):
            flush()
        else:
            if re.match(r"(?:[-*+]|\d+\.)\s", bare):
                flush()
                bare = re.sub(r"^(?:[-*+]|\d+\.)\s+", "", bare)
            if not lines:
                start = number
            lines.append(bare)
    flush()
    return found


def plain(text):
    """A paragraph without markup; inline code counts as one word."""
    text = re.sub(r"``.+?``|`[^`]+`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}", "", text)


def sentences(text):
    for start, paragraph in paragraphs(text):
        for sentence in re.split(r"(?<=[.!?:])[)\"']*\s+(?=[A-Z(\"'0-9])", plain(paragraph)):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if words:
                yield start, sentence, len(words)


def anchors(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    slugs = set()
    for heading in re.findall(r"^#+\s+(.*)$", text, flags=re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        number, unique = 0, slug
        while unique in slugs:
            number += 1
            unique = f"{slug}-{number}"
        slugs.add(unique)
    return slugs


def broken_links(path, text):
    prose = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.S)
    for match in re.finditer(r"\]\(([^)\s]+)\)", prose):
        target, line = match[1], prose.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file) if file else path
        if not there.exists():
            yield line, f"link to {target}: no such file"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there):
            yield line, f"link to {target}: no such heading"


def problems(path):
    text = path.read_text()
    yield from broken_links(path, text)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.strip().startswith("```")
        table = not fenced and line.lstrip().startswith(("|", "#"))
        if len(line) > COLUMNS_MAX and not table and "](" not in line and "<" not in line:
            yield number, f"{len(line)} columns"
        if not fenced:
            spoken = re.sub(r"`[^`]*`", "", line)
            for word in FORBIDDEN:
                if found := re.search(rf"\b{word}\b", spoken, flags=re.I):
                    yield number, f"word of the old house: {found[0]!r}"
    for start, sentence, words in sentences(text):
        if words > WORDS_MAX:
            yield start, f"sentence of {words} words: {sentence[:70]}…"
        if OPENERS.search(sentence):
            yield start, f"opener: {sentence[:50]}…"


def mean(path):
    lengths = [words for _, _, words in sentences(path.read_text())]
    return sum(lengths) / max(len(lengths), 1), len(lengths)


def messages_without_source():
    """Messages that troubleshooting quotes in its headings and that the source does not have."""
    page = ROOT / "docs/guide/troubleshooting.md"
    source = []
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        source.append(re.sub(r"\\\n\s*", "", path.read_text()))
    source = "\n".join(source).replace('\\"', '"')
    for number, line in enumerate(page.read_text().splitlines(), 1):
        quoted = re.fullmatch(r"### `(.*)`", line)
        for part in re.split(r"…|\b[A-Z]{1,}\b", quoted[1]) if quoted else []:
            part = part.strip(" :;,()'\"`")
            if len(part) >= 8 and part not in source:
                yield number, f"no message of the source has {part!r}"


def foreign(manifest, *kinds):
    """Direct dependencies of a manifest that are not part of this repository."""
    parsed = tomllib.loads(manifest.read_text())
    return {name for kind in kinds for name in parsed.get(kind, {}) if not name.startswith("larder-")}


def against_manifests():
    """Differences of docs/dependencies.md from the manifests."""
    crates = sorted(ROOT.glob("crates/*/Cargo.toml"))
    apart = [ROOT / "crates/testkit/Cargo.toml", *ROOT.glob("bench/*/Cargo.toml"), ROOT / "fuzz/Cargo.toml"]
    kinds = ["dependencies", "build-dependencies"]
    linked = {name for path in crates if path not in apart for name in foreign(path, *kinds)}
    others = {name for path in [*crates, *apart] for name in foreign(path, *kinds, "dev-dependencies")} - linked
    page = (ROOT / "docs/dependencies.md").read_text()
    for heading, used in (("Linked into the program", linked), ("Not in the program", others)):
        rows = re.findall(r"^\| (`.*?) \|", page.split(f"## {heading}\n")[1].split("\n## ")[0], flags=re.M)
        said = set(re.findall(r"`([^`]+)`", " ".join(rows)))
        yield from (f"{heading}: {name} is missing" for name in sorted(used - said))
        yield from (f"{heading}: no crate here depends on {name}" for name in sorted(said - used))
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    unused = {name for name in workspace if not name.startswith("larder-")} - linked - others
    yield from (f"the workspace declares {name}, which no crate uses" for name in sorted(unused))


def help_of(larder, *verb):
    text = subprocess.run([larder, *verb, "--help"], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^\s+(?:-\w, )?(--[a-z][a-z-]+)", text, flags=re.M))
    commands = re.search(r"^Commands:\n(.*?)\n\n", text + "\n\n", flags=re.M | re.S)
    verbs = re.findall(r"^  ([a-z-]+)  ", commands[1], flags=re.M) if commands else []
    return text, names - {"--help", "--version"}, [verb for verb in verbs if verb != "help"]


def against_program(larder):
    """Differences of the reference from the help of the program."""
    reference = (ROOT / "docs/guide/reference.md").read_text()
    sections = dict(re.findall(r"^### `larder ([a-z -]+)`\n(.*?)(?=^##|\Z)", reference, flags=re.M | re.S))
    text, common, verbs = help_of(larder)
    rows = re.findall(r"^\| (`-.*?) \|", reference.split("## Global options")[1].split("\n## ")[0], flags=re.M)
    said = set(re.findall(r"(--[a-z][a-z-]+)", "\n".join(rows)))
    yield from (f"global option {name} is missing" for name in sorted(common - said))
    yield from (f"global option {name} does not exist" for name in sorted(said - common))
    for code, meaning in re.findall(r"^ +(\d+)  (.*(?:\n {4,}[a-z].*)*)", text.split("Exit codes:")[1], flags=re.M):
        row = f"| {code} | {' '.join(meaning.split())} |"
        if row not in reference:
            yield f"no row {row}"
    leaves = []
    for verb in verbs:
        below = help_of(larder, verb)[2]
        leaves += [f"{verb} {name}" for name in below] or [verb]
        if verb == "repair":
            leaves.append(verb)
    for leaf in leaves:
        if leaf not in sections:
            yield f"`larder {leaf}` has no section"
            continue
        names = help_of(larder, *leaf.split())[1] - common
        rows = "\n".join(re.findall(r"^\| `-.*$", sections[leaf], flags=re.M))
        said = set(re.findall(r"(--[a-z][a-z-]+)", "\n".join(row.split("|")[1] for row in rows.splitlines())))
        if "[Filters](#filters)" in sections[leaf]:
            said |= {"--host", "--tag", "--path", "--series"}
        if "[Options of a pass](#options-of-a-pass)" in sections[leaf]:
            said |= set(re.findall(r"^\| `(--[a-z-]+)", reference.split("### Options of a pass")[1].split("\n##")[0], flags=re.M))
        yield from (f"larder {leaf}: {name} is missing" for name in sorted(names - said))
        yield from (f"larder {leaf}: {name} does not exist" for name in sorted(said - names))
    for leaf in sorted(set(sections) - set(leaves)):
        yield f"`larder {leaf}` is no verb"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--larder")
    parser.add_argument("--mean", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    if args.mean:
        for path in args.mean:
            length, count = mean(path)
            print(f"{path}: {length:.1f} words in {count} sentences")
        return 0
    failed = 0
    files = [path for pattern in COVERED for path in sorted(ROOT.glob(pattern))]
    for path in files:
        for line, problem in sorted(problems(path)):
            failed += 1
            print(f"{path.relative_to(ROOT)}:{line}: {problem}")
    for line, problem in messages_without_source():
        failed += 1
        print(f"docs/guide/troubleshooting.md:{line}: {problem}")
    for problem in against_manifests():
        failed += 1
        print(f"docs/dependencies.md: {problem}")
    for problem in against_program(args.larder) if args.larder else []:
        failed += 1
        print(f"docs/guide/reference.md: {problem}")
    for path in [path for pattern in NOT_YET for path in sorted(ROOT.glob(pattern))]:
        for line, problem in broken_links(path, path.read_text()):
            failed += 1
            print(f"{path.relative_to(ROOT)}:{line}: {problem}")
    print(f"{len(files)} files checked, {failed} problems; only links are checked yet in: {', '.join(NOT_YET)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
