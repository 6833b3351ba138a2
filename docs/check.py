#!/usr/bin/env python3
"""Checks the documentation: length of sentences and lines, links, words, and agreement with the program.

    docs/check.py                       the prose of the covered files and of the JSON schemas
    docs/check.py --larder PATH         also the texts of `PATH VERB --help`, and the reference against them
    docs/check.py --mean FILE...        only the mean length of a sentence of each file

Code blocks and inline code are no sentences; a cell of a table is. A covered file fails on
- a sentence of more than 25 words, or one that begins with "What";
- a line of more than 100 columns outside of tables and long links;
- a link that leads nowhere, or inline code with the name of a file, test or rule that does not exist;
- an old word for something that has a standard one.
Keys and descriptions of JSON schemas, help texts, and comments of some crates must not have the old words either.
Messages quoted in docs/guide/troubleshooting.md must be in the source.
Metrics of the dashboard, of the alerts and of the guide must be written by the program.
docs/dependencies.md must name every direct dependency, and only those. Standard library only.
"""
import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The bench writes the pages of its results itself.
COVERED = ["*.md", ".github/**/*.md", "docs/*.md", "docs/guide/*.md", "docs/decisions/*.md", "bench/README.md",
           "bench/*/README.md", "fuzz/README.md", "tools/README.md"]
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
    r"led", r"compactions?", r"preferred", r"nobody needs", r"patience",
]
# Terms of some files: a settled job is one of the protocol, vector registers have lanes, and a store under test lies.
ALLOWED = {"docs/concurrency.md": {"settled"}, "crates/store": {"settled"}, "crates/gnode": {"settled"},
           "crates/chunking": {"lanes"}, "crates/dedup": {"lanes"}, "crates/testkit": {"lies"}}
# Crates whose comments are checked for columns and old words.
COMMENTS = ["beneath", "blockfs", "chunking", "cli", "dedup", "drill", "fleet", "format", "gnode", "index", "job", "lifecycle", "lnode", "mount", "mountpoint", "nbd", "profile", "reader", "rewrite",
            "secret", "source", "spill", "state", "store", "testkit", "tree", "volume", "webdav", "writer"]
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


def cells(text):
    """Cells of the tables of a Markdown text, and items of a list in a cell: (line number, text)."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.strip().startswith("```")
        if not fenced and line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in re.split(r"\||<br>|; ", plain(line)))


def split(text):
    """Sentences of a text without markup: (sentence, number of words)."""
    for sentence in re.split(r"(?<=[.!?:])[)\"']*\s+(?=[A-Z(\"'0-9])", text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if words:
            yield sentence, len(words)


def sentences(text):
    for start, paragraph in paragraphs(text):
        yield from ((start, *found) for found in split(plain(paragraph)))


def old_words(text, allowed=frozenset()):
    """Old words of a text for something that has a standard word."""
    for word in FORBIDDEN:
        found = re.search(rf"\b{word}\b", text, flags=re.I)
        if found and found[0].lower() not in allowed:
            yield f"old word: {found[0]!r}"


def bad_sentences(text):
    """Sentences of a text without markup that are too long or begin badly."""
    for sentence, words in split(text):
        if words > WORDS_MAX:
            yield f"sentence of {words} words: {sentence[:70]}…"
        if OPENERS.search(sentence):
            yield f"opener: {sentence[:50]}…"


def bad_items(text):
    """The same of a short text such as a description, in which semicolons separate items."""
    for item in text.split("; "):
        yield from bad_sentences(item)


@functools.cache
def sources():
    """Names of all files of the repository, each after a slash, and the text of its programs."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [name for name in listed if (ROOT / name).is_file()]
    code = (ROOT / name for name in files if name.endswith((".rs", ".py", ".sh", ".toml")) or name.startswith(".ci/"))
    return "\n".join(f"/{name}" for name in files), "\n".join(path.read_text() for path in code)


def exists(name):
    """Whether the repository has the file, module, test or rule that inline code names; true for other code."""
    files, code = sources()
    if re.fullmatch(r"[\w./-]+\.(?:rs|py|sh|md)|(?:crates|docs|bench|tests|tools|fuzz)/[\w./-]+", name):
        return f"/{name}" in files
    if module := re.fullmatch(r"(?:[a-z_]+::)*([a-z_]+)::([a-z_]+)", name):
        above, item = module[1].removeprefix("larder_"), module[2]
        if not re.search(rf"/{above}(?:\.rs)?(?:/|$)", files, flags=re.M):
            return True
        inside = re.search(rf"/{above}/(?:src/)?{item}(?:\.rs|/)", files)
        return bool(inside or re.search(rf"\b(?:const|enum|fn|static|struct|trait|type) {item}\b", code))
    if re.fullmatch(r"[a-z]+(?:_[a-z0-9]+){2,}|(?:[A-Z][a-z]+){2,}", name):
        return name in code
    return True


def unknown_names(text):
    prose = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.S)
    for match in re.finditer(r"`([^`\n]+)`", prose):
        if not exists(match[1]):
            yield prose.count("\n", 0, match.start()) + 1, f"no such file, module, test or rule: {match[1]}"


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
    allowed = ALLOWED.get(str(path.relative_to(ROOT)), frozenset())
    yield from broken_links(path, text)
    if path.parent.name != "guide":  # The guide names things of other programs, and nothing of the source.
        yield from unknown_names(text)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.strip().startswith("```")
        table = not fenced and line.lstrip().startswith(("|", "#"))
        if len(line) > COLUMNS_MAX and not table and "](" not in line and "<" not in line:
            yield number, f"{len(line)} columns"
        if not fenced:
            yield from ((number, word) for word in old_words(re.sub(r"`[^`]*`", "", line), allowed))
    for start, paragraph in [*((start, plain(text)) for start, text in paragraphs(text)), *cells(text)]:
        yield from ((start, problem) for problem in bad_sentences(paragraph))


def comment_problems(path):
    allowed = ALLOWED.get("/".join(path.relative_to(ROOT).parts[:2]), frozenset())
    for number, line in enumerate(path.read_text().splitlines(), 1):
        comment = re.match(r"\s*//[/!]?(.*)", line)
        if comment and len(line) > COLUMNS_MAX and not comment[1].lstrip().startswith("|"):
            yield number, f"{len(line)} columns"
        if comment:
            yield from ((number, word) for word in old_words(re.sub(r"`[^`]*`|\]\([^)]*\)", "", comment[1]), allowed))


def schema_texts(schema):
    """Keys and fixed values of a JSON schema, and its titles and descriptions: (text, whether it is prose)."""
    if isinstance(schema, list):
        for part in schema:
            yield from schema_texts(part)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("title", "description") and isinstance(value, str):
                yield value, True
            elif key in ("enum", "required", "const"):
                yield from ((str(name).replace("_", " "), False) for name in (value if isinstance(value, list) else [value]))
            else:
                yield key.replace("_", " "), False
                yield from schema_texts(value)


def schema_problems(path):
    for text, prose in schema_texts(json.loads(path.read_text())):
        yield from old_words(text)
        if prose:
            yield from bad_items(plain(text))


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


def written_metrics():
    """Names of all metrics that the program writes: the prefixes of each source file with each name in it."""
    names, commands = set(), ROOT / "crates/cli/src/commands"
    texts = {path: path.read_text() for path in commands.glob("**/*.rs")}
    prefix = re.compile(r'(?:MetricsText::new|\.render)\("(larder_[a-z_]*)"')
    word = re.compile(r'"([a-z][a-z0-9_]*)"')
    # These write their metrics into texts of others.
    shared = {name: set(word.findall(texts[commands / name])) for name in
              ("metrics_text.rs", "reading_metrics.rs", "repository_numbers.rs")}
    shared["reading_metrics.rs"] |= shared["metrics_text.rs"]
    for path, text in texts.items():
        own = set(word.findall(text.split("#[cfg(test)]")[0]))
        for name, words in shared.items():
            own |= words if re.search(rf"\b{name.removesuffix('.rs')}\b", text) else set()
        names |= {start + end for start in prefix.findall(text.split("#[cfg(test)]")[0]) for end in own}
    return names


def unknown_metrics():
    """Metrics that the files for Prometheus and Grafana and the guide name, and that the program does not write."""
    written = written_metrics()
    files = [*sorted((ROOT / "docs/monitoring").iterdir()), *sorted((ROOT / "docs/guide").glob("*.md"))]
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"\blarder_[a-z_]*[a-z]\b", line):
                if name not in written:
                    yield f"{path.relative_to(ROOT)}:{number}", f"the program writes no metric {name}"


def foreign(manifest, *kinds):
    """Direct dependencies of a manifest that are not part of this repository."""
    parsed = tomllib.loads(manifest.read_text())
    return {name for kind in kinds for name in parsed.get(kind, {}) if not name.startswith("larder-")}


def against_manifests():
    """Differences of docs/dependencies.md from the manifests."""
    crates = sorted(ROOT.glob("crates/*/Cargo.toml"))
    only_tests = [ROOT / "crates" / name / "Cargo.toml" for name in ("testkit", "fuzz-targets")]
    apart = [*only_tests, *ROOT.glob("bench/*/Cargo.toml"), ROOT / "fuzz/Cargo.toml"]
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


def help_problems(larder, *verb):
    """Problems of the help of a verb and of the verbs below it."""
    text, _, below = help_of(larder, *verb)
    for paragraph in re.split(r"\n\s*\n|\n(?= *-)", text):
        spoken = plain(" ".join(paragraph.split()))
        is_list = re.match(r"(?:Commands|Examples|Exit codes|Usage):", spoken)
        for problem in [*old_words(spoken), *([] if is_list else bad_items(spoken))]:
            yield f"{' '.join(['larder', *verb, '--help'])}: {problem}"
    for name in below:
        yield from help_problems(larder, *verb, name)


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
    files = [path for pattern in COVERED for path in sorted(ROOT.glob(pattern))]
    schemas = sorted(ROOT.glob("docs/json/*.json"))
    found = [(f"{path.relative_to(ROOT)}:{line}", problem) for path in files for line, problem in sorted(problems(path))]
    found += [(path.relative_to(ROOT), problem) for path in schemas for problem in schema_problems(path)]
    code = [path for crate in COMMENTS for path in sorted(ROOT.glob(f"crates/{crate}/src/**/*.rs"))]
    found += [(f"{path.relative_to(ROOT)}:{line}", problem) for path in code for line, problem in comment_problems(path)]
    found += [(f"docs/guide/troubleshooting.md:{line}", problem) for line, problem in messages_without_source()]
    found += unknown_metrics()
    found += [("docs/dependencies.md", problem) for problem in against_manifests()]
    if args.larder:
        found += [("docs/guide/reference.md", problem) for problem in against_program(args.larder)]
        found += [("help", problem) for problem in help_problems(args.larder)]
    for place, problem in found:
        print(f"{place}: {problem}")
    print(f"{len(files)} pages, {len(schemas)} schemas and {len(code)} sources checked, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
