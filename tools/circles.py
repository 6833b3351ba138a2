#!/usr/bin/env python3
"""Finds import circles between the modules of each crate. With --facts it prints sizes instead.

A file imports another one when code outside of its tests names an item of it, in `use` or in a path: `crate::a::X`,
`super::X`, or `child::X`. Re-exports are followed to the file that has the item.

Modules with the same parent must not import each other in a circle. A module counts with all modules below it, so
its file and its children may use each other: they are one thing in several files. The root of a crate does not count.
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IDENT = r"[A-Za-z_][A-Za-z0-9_]*"


def without_comments_and_strings(text):
    """The code alone. Line breaks stay, and each literal becomes an empty one."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(?P<h>#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL
    )
    return pattern.sub(lambda found: '""' if '"' in found[0][:4] else " ", text)


def closing(text, start):
    """The index after the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def without_tests(text):
    """The code without items that only tests have, and the names of modules that only tests have."""
    only_tests = set()
    while found := re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*", text):
        rest = text[found.end() :]
        if declared := re.match(rf"(?:pub(?:\([^)]*\))?\s+)?mod\s+({IDENT})\s*;", rest):
            only_tests.add(declared[1])
        end = re.search(r"[;{]", rest)
        if end is None:
            return text[: found.start()], only_tests
        stop = found.end() + end.end() if end[0] == ";" else closing(text, found.end() + end.start())
        text = text[: found.start()] + text[stop:]
    return text, only_tests


def use_paths(tree, prefix=()):
    """Every path of a `use` tree, with the name that it gets."""
    tree = tree.strip()
    if "{" in tree:
        head, inner = tree.split("{", 1)
        inner = inner.rsplit("}", 1)[0]
        prefix = prefix + tuple(part.strip() for part in head.split("::") if part.strip())
        depth, start, parts = 0, 0, []
        for at, char in enumerate(inner + ","):
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == "," and depth == 0:
                parts.append(inner[start:at])
                start = at + 1
        for part in parts:
            if part.strip():
                yield from use_paths(part, prefix)
        return
    path, _, alias = tree.partition(" as ")
    path = prefix + tuple(part.strip() for part in path.split("::") if part.strip())
    if path and path[-1] == "self":
        path = path[:-1]
    if path:
        yield path, (alias.strip() or path[-1])


class Module:
    """One file: what it imports, what it names in paths, and its items."""

    def __init__(self, path, file):
        self.path, self.file = path, file
        text, self.only_tests = without_tests(without_comments_and_strings(file.read_text()))
        self.uses = []  # Path, and the name that it gets here.
        rest = []
        last = 0
        for found in re.finditer(r"(?:pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", text):
            self.uses += use_paths(found[1])
            rest.append(text[last : found.start()])
            last = found.end()
        self.code = "".join(rest) + text[last:]
        self.paths = {
            tuple(part.strip() for part in found[0].split("::"))
            for found in re.finditer(rf"(?<![\w:])(?:{IDENT}\s*::\s*)+{IDENT}", self.code)
        }
        self.items = set(
            re.findall(rf"\b(?:fn|struct|enum|trait|type|const|static|union|macro_rules!)\s+({IDENT})", self.code)
        )


class Crate:
    """The modules of one crate, without those that only tests have."""

    def __init__(self, folder):
        self.name, self.src = folder.name, folder / "src"
        self.modules = {}
        skipped = set()
        for file in sorted(self.src.rglob("*.rs"), key=lambda file: (len(file.parts), file)):
            parts = file.relative_to(self.src).with_suffix("").parts
            if parts[-1] in ("mod", "lib", "main"):
                parts = parts[:-1]
            if any(parts[: len(test)] == test for test in skipped):
                continue
            module = Module(parts, file)
            skipped |= {parts + (name,) for name in module.only_tests}
            if parts in self.modules:  # lib.rs and main.rs
                self.modules[parts].uses += module.uses
            else:
                self.modules[parts] = module
        for path in list(self.modules):
            if any(path[: len(test)] == test for test in skipped):
                del self.modules[path]

    def absolute(self, module, path):
        """A path from the root of the crate, or None when it leads elsewhere."""
        here = module.path
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return here + path[1:]
        if path[0] == "super":
            while path and path[0] == "super":
                here, path = here[:-1], path[1:]
            return here + path
        if here + path[:1] in self.modules:
            return here + path
        return None

    def owner(self, path, seen=()):
        """The module that has the item at a path, behind re-exports. None when it is no item of this crate."""
        length = max(n for n in range(len(path) + 1) if path[:n] in self.modules)
        module, rest = self.modules[path[:length]], path[length:]
        if not rest or rest[0] in module.items or (module.path, rest[0]) in seen:
            return module
        seen = (*seen, (module.path, rest[0]))
        for used, name in module.uses:
            if name == rest[0]:
                target = self.absolute(module, used)
                return None if target is None else self.owner(target + rest[1:], seen)
        for used, name in module.uses:
            if name == "*" and (target := self.absolute(module, used[:-1])) is not None:
                found = self.owner(target + rest, seen)
                if found is not None and rest[0] in found.items:
                    return found
        return module

    def imports(self):
        """For each module, the modules that it imports."""
        graph = {path: set() for path in self.modules}
        for module in self.modules.values():
            for path in {used for used, _ in module.uses} | module.paths:
                if (target := self.absolute(module, path)) is None:
                    continue
                owner = self.owner(tuple(part for part in target if part != "*"))
                if owner is not None and owner is not module:
                    graph[module.path].add(owner.path)
        return graph


def circles(graph):
    """Strongly connected components of more than one node."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def siblings(graph, parent):
    """Imports between the modules directly below `parent`, each with all modules below it."""
    depth = len(parent) + 1
    level = {module[:depth]: set() for module in graph if module[: depth - 1] == parent and len(module) >= depth}
    for module, imports in graph.items():
        for target in imports:
            ends = (module[:depth], target[:depth])
            if ends[0] != ends[1] and ends[0] in level and ends[1] in level:
                level[ends[0]].add(ends[1])
    return level


def lines_of(circle, level, graph):
    """One line for each import between modules of a circle, with a file that has it."""
    depth = len(circle[0])
    for module in circle:
        for target in sorted(level[module] & set(circle)):
            file = next(
                file
                for file, imports in sorted(graph.items())
                if file[:depth] == module and any(other[:depth] == target for other in imports)
            )
            yield f"    {'::'.join(file)} imports {'::'.join(target)}"


def check(crates):
    """Prints every circle. Returns how many there are."""
    count = 0
    for crate in crates:
        graph = crate.imports()
        for parent in sorted({module[:-1] for module in graph if module}):
            level = siblings(graph, parent)
            for circle in circles(level):
                place = "::".join((crate.name, *parent))
                count += 1
                print(f"{place}: {', '.join(module[-1] for module in circle)}")
                print("\n".join(lines_of(circle, level, graph)))
    return count


def facts(crates):
    """Prints files, lines and public items of each crate, without the modules that only tests have."""
    print(f"{'crate':<12}{'files':>6}{'lines':>8}{'longest':>9}{'public items':>14}")
    for crate in crates:
        lengths = [len(module.file.read_text().splitlines()) for module in crate.modules.values()]
        items = r"\bpub\s+(?:const\s+|async\s+|unsafe\s+)*(?:fn|struct|enum|trait|type|const|static|union)\s"
        public = sum(len(re.findall(items, module.code)) for module in crate.modules.values())
        print(f"{crate.name:<12}{len(lengths):>6}{sum(lengths):>8}{max(lengths):>9}{public:>14}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--facts", action="store_true", help="print files, lines and public items by crate")
    arguments = parser.parse_args()
    crates = [Crate(folder) for folder in sorted((ROOT / "crates").iterdir()) if (folder / "src").is_dir()]
    if arguments.facts:
        facts(crates)
        return
    if count := check(crates):
        sys.exit(f"{count} circles: move what both sides need into a module of its own")


if __name__ == "__main__":
    main()
