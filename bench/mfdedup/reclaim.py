#!/usr/bin/env python3
"""Which containers to retire, in a model of a set like WEB: pages that change in places, six tenths of them nine times in ten.

    bench/mfdedup/reclaim.py

Prints, for each rule, what arranging moves beside the paper's arranging, and the amplification of the newest version as a mean over the
last eight. The rules of the layout are those of `src/schemes/larder.rs`; what may be tried here is the choice alone. Takes a minute.
"""

import random

CONTAINER = 16 << 20
PAGES, VERSIONS, RETAINED = 3000, 60, 20
# Pages that a version changes; those that often change; how many of the changes are theirs; chunks of a page that change with it.
CHANGED, OFTEN, OF_OFTEN, OF_PAGE = 0.22, 0.6, 0.9, 0.55
# Of what nobody needs a container may hold so much.
DEAD = 0.1


class Model:
    def __init__(self, knows):
        """`knows`: an oracle keeps chunks of pages that often change apart from the others."""
        self.rng, self.knows = random.Random(1), knows
        # Of each chunk: the first and the last version that has it, its bytes, whether its page often changes.
        self.first, self.last, self.size, self.often = [], [], [], []
        self.containers, self.next = {}, 0

    def chunk(self, version, often):
        self.first.append(version)
        self.last.append(version)
        self.size.append(self.rng.randint(2 << 10, 14 << 10))
        self.often.append(often)
        return len(self.first) - 1

    def bytes(self, chunks):
        return sum(self.size[chunk] for chunk in chunks)

    def write(self, chunks):
        if self.knows:
            chunks = sorted(chunks, key=lambda chunk: self.often[chunk])
        open_, filled = [], 0
        for chunk in chunks:
            if filled + self.size[chunk] > CONTAINER:
                self.containers[self.next], open_, filled = open_, [], 0
                self.next += 1
            open_.append(chunk)
            filled += self.size[chunk]
        if open_:
            self.containers[self.next] = open_
            self.next += 1

    def arrange(self, version, choose):
        """Gives containers up; says how many bytes were copied."""
        is_dead = lambda chunk: self.last[chunk] <= version - RETAINED
        for number in [number for number, chunks in self.containers.items() if all(map(is_dead, chunks))]:
            del self.containers[number]
        reclaimed, open_ = [], []
        for number, chunks in self.containers.items():
            whole = self.bytes(chunks)
            left = self.bytes(chunk for chunk in chunks if self.last[chunk] != version)
            if self.bytes(filter(is_dead, chunks)) > DEAD * whole:
                reclaimed.append(number)
            elif left < whole:
                age = version - min(self.first[chunk] for chunk in chunks)
                open_.append((number, left, whole, age))
            elif len({self.last[chunk] for chunk in chunks}) > 1:
                reclaimed.append(number)
        stays, volumes = [], {}
        for number in reclaimed + choose(open_):
            for chunk in self.containers.pop(number):
                if self.last[chunk] == version:
                    stays.append(chunk)
                elif not is_dead(chunk):
                    volumes.setdefault(self.last[chunk], []).append(chunk)
        moved = [stays, *volumes.values()]
        for chunks in moved:
            self.write(sorted(chunks, key=lambda chunk: self.first[chunk]))
        return sum(map(self.bytes, moved))

    def amplification(self, version, now):
        read = 0
        for chunks in self.containers.values():
            used = [place for place, chunk in enumerate(chunks) if self.last[chunk] == version]
            if used:
                read += self.bytes(chunks[used[0] : used[-1] + 1])
        return read / self.bytes(now)


def run(choose, knows=False):
    model = Model(knows)
    rng = model.rng
    often = [rng.random() < OFTEN for _ in range(PAGES)]
    pages = [[model.chunk(0, is_often) for _ in range(rng.randint(1, 6))] for is_often in often]
    model.write([chunk for page in pages for chunk in page])
    changes = int(PAGES * CHANGED)
    classes = [([p for p in range(PAGES) if often[p]], int(changes * OF_OFTEN)),
               ([p for p in range(PAGES) if not often[p]], changes - int(changes * OF_OFTEN))]
    moved = paper = 0
    amplifications, now = [], {chunk for page in pages for chunk in page}
    for version in range(1, VERSIONS):
        before, new = model.bytes(now), []
        for page in sorted(page for those, count in classes for page in rng.sample(those, count)):
            for place in range(len(pages[page])):
                if rng.random() < OF_PAGE:
                    pages[page][place] = model.chunk(version, often[page])
                    new.append(pages[page][place])
        now = {chunk for page in pages for chunk in page}
        for chunk in now:
            model.last[chunk] = version
        model.write(new)
        copied = model.arrange(version, choose)
        if version >= RETAINED:
            moved, paper = moved + copied, paper + before
        if version >= VERSIONS - 8:
            amplifications.append(model.amplification(version, now))
    return moved / paper, sum(amplifications) / len(amplifications)


def each(most):
    return lambda containers: [number for number, left, whole, _ in containers if left > most * whole]


def together(most, worth):
    """The worst ones, until of all together no more than this has left."""

    def choose(containers):
        all_left, all_whole = (sum(container[field] for container in containers) for field in (1, 2))
        chosen = []
        for number, left, _, _ in sorted(containers, key=worth, reverse=True):
            if all_left <= most * all_whole:
                break
            chosen.append(number)
            all_left, all_whole = all_left - left, all_whole - left
        return chosen

    return choose


def by_holes(container):
    return container[1] / container[2]


def by_age_too(container):
    _, left, whole, age = container
    return left / (whole - left) * (age + 1) ** 0.5


if __name__ == "__main__":
    print("| retired | moved | amplification |\n|---|---:|---:|")
    rules = [(f"each above {most} %", each(most / 100), False) for most in (10, 20, 30, 40)]
    rules += [(f"the worst, until all have {most} %", together(most / 100, by_holes), False) for most in (6, 8, 10, 14)]
    rules += [(f"the worst by age too, until all have {most} %", together(most / 100, by_age_too), False) for most in (6, 10)]
    rules += [(f"each above {most} %, by an oracle", each(most / 100), True) for most in (20, 30, 40)]
    for name, choose, knows in rules:
        print("| %s | %.2f | %.2f |" % (name, *run(choose, knows)), flush=True)
