"""SQLite database files that change from version to version.

One orders database: customers, orders with a note, numbers and a small payload, an index over the customer. Each version is a
copy of the one before with orders added, changed and deleted. Changes have locality, as in a real shop: most fall in runs
of neighbouring orders, more often recent ones, some are single orders anywhere. `CHANGED` is the share of pages each version
is meant to change; what really came out is measured, kept in the manifest, and refused when it leaves 65-95 % duplicates.
"""

import bisect
import hashlib
import itertools
import random
import shutil
import sqlite3

from . import base

PAGE = 4096
# Bytes of the first version and number of versions.
SCALES = {"small": (64 * base.MIB, 4), "full": (557 * base.MIB, 10)}
# Mean bytes an order takes in the file, its index entry included; only used to turn sizes into row counts.
ORDER_BYTES = 745
CHANGED = [0.12, 0.36, 0.07, 0.25, 0.38, 0.15, 0.32, 0.06, 0.36]
ORDERS_PER_PAGE = 5.5
# In a run one order in so many is changed: every page of the run, every third, every ninth.
RUN_STEPS = [3, 16, 48]
# Changes of single orders anywhere, as a share of the changed pages.
SINGLE_SHARE = 0.004
STATES = ["new", "paid", "packed", "shipped", "returned", "refunded", "disputed", "closed"]
DUPLICATES_ALLOWED = (0.65, 0.95)


class Text:
    """Words with frequencies like a language's, so that text compresses like text."""

    def __init__(self, rng):
        onsets = "b bl br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sl st t th tr v w z".split()
        nuclei = "a e i o u ai ea ee ie oa ou".split()
        codas = ["", "", "", "n", "r", "s", "t", "l", "nd", "ng", "rt", "st", "ck"]
        words = set()
        while len(words) < 6000:
            words.add("".join(rng.choice(onsets) + rng.choice(nuclei) + rng.choice(codas) for _ in range(rng.choice((1, 2, 2, 3)))))
        self.words = sorted(words)
        rng.shuffle(self.words)
        self.weights = list(itertools.accumulate(1.0 / (rank + 8) for rank in range(len(self.words))))

    def line(self, rng, count):
        """A line of about `count` words."""
        return " ".join(rng.choices(self.words, cum_weights=self.weights, k=count))

    def word(self, rng):
        return self.words[min(bisect.bisect(self.weights, rng.random() * self.weights[-1]), len(self.words) - 1)]


def order_row(rng, text, number, customers):
    created = 1_600_000_000 + number * 37 + rng.randrange(600)
    note = text.line(rng, max(4, int(rng.gauss(58, 24))))
    return (number, rng.randrange(customers), created, rng.choice(STATES), round(rng.expovariate(0.01), 2), note, rng.randbytes(rng.randrange(40, 140)))


def open_database(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA page_size={PAGE}")
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("PRAGMA cache_size=-262144")
    return db


def create(path, bytes_wanted, rng, text):
    """The first version. Returns the number of the last order."""
    orders = bytes_wanted // ORDER_BYTES
    customers = max(1000, orders // 25)
    db = open_database(path)
    db.execute("BEGIN")
    db.execute("CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, email TEXT, city TEXT, since INTEGER)")
    db.execute(
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, created INTEGER, state TEXT, amount REAL, note TEXT, payload BLOB)"
    )
    rows = ((n, text.line(rng, 2), f"{text.word(rng)}{n}@{text.word(rng)}.example", text.word(rng), 1_500_000_000 + n) for n in range(customers))
    db.executemany("INSERT INTO customers VALUES(?,?,?,?,?)", rows)
    db.executemany("INSERT INTO orders VALUES(?,?,?,?,?,?,?)", (order_row(rng, text, n, customers) for n in range(1, orders + 1)))
    db.execute("CREATE INDEX orders_customer ON orders(customer)")
    db.execute("COMMIT")
    db.close()
    return orders


def runs_of_orders(rng, last, wanted):
    """Runs of neighbouring orders of which some change: (first, length, step), about `wanted` changed pages in all.

    Newer orders are twice as likely. The step says how dense the run is: every page of it or only some.
    """
    left = wanted
    while left > 0:
        step = rng.choice(RUN_STEPS)
        pages = min(left, max(4, int(10 ** rng.uniform(1.5, 3.1) * last / 400_000)))
        length = min(int(pages * max(step, ORDERS_PER_PAGE)), last // 8)
        place = max(rng.random(), rng.random())
        yield int(place * (last - length)) + 1, length, step
        left -= pages


def change(path, share, rng, text, last):
    """Makes one version out of the copy of the version before. Returns the number of the last order.

    The share is met only roughly: runs overlap, the index changes beside the table, longer notes split pages.
    """
    customers = max(1000, last // 25)
    pages = int(last / ORDERS_PER_PAGE * share)
    db = open_database(path)
    db.execute("BEGIN")
    update = "UPDATE orders SET state=?, amount=?, note=coalesce(?, note) WHERE id=?"

    def changed_rows():
        for first, length, step in runs_of_orders(rng, last, int(pages * 0.75)):
            for number in range(first, first + length, step):
                # A new note seldom has the old one's length: some rows grow and split their page, some leave a gap.
                note = text.line(rng, max(4, int(rng.gauss(50, 20)))) if rng.random() < 0.35 else None
                yield rng.choice(STATES), round(rng.expovariate(0.01), 2), note, number
        for _ in range(int(pages * SINGLE_SHARE)):
            yield rng.choice(STATES), round(rng.expovariate(0.01), 2), None, rng.randrange(1, last + 1)

    db.executemany(update, changed_rows())
    for _ in range(3):
        length = int(pages * ORDERS_PER_PAGE * 0.05 / 3)
        first = rng.randrange(1, last // 2)
        db.execute("DELETE FROM orders WHERE id BETWEEN ? AND ?", (first, first + length - 1))
    added = int(pages * ORDERS_PER_PAGE * 0.12)
    db.executemany("INSERT INTO orders VALUES(?,?,?,?,?,?,?)", (order_row(rng, text, n, customers) for n in range(last + 1, last + 1 + added)))
    db.execute("COMMIT")
    db.close()
    return last + added


def page_hashes(path):
    hashes = set()
    count = 0
    with open(path, "rb") as file:
        while block := file.read(PAGE * 1024):
            for at in range(0, len(block), PAGE):
                hashes.add(hashlib.blake2b(block[at : at + PAGE], digest_size=16).digest())
                count += 1
    return hashes, count


def make(scale, versions=None):
    bytes_first, count = SCALES[scale]
    count = versions or count
    params = {"seed": base.SEED, "bytes_first": bytes_first, "versions": count, "revision": 5, "sqlite": sqlite3.sqlite_version}
    if base.is_current("db", scale, params):
        return base.load("db", scale)
    folder = base.begin("db", scale)
    text = Text(random.Random(f"{base.SEED} words"))
    out = []
    previous_path = previous = None
    last = 0
    for number in range(1, count + 1):
        rng = random.Random(f"{base.SEED} db {number}")
        # A folder per version and one file name: a tool that is given the folder sees the same database every time.
        path = folder / f"v{number:02}" / "orders.sqlite"
        path.parent.mkdir()
        if previous_path is None:
            last = create(path, bytes_first, rng, text)
        else:
            shutil.copyfile(previous_path, path)
            last = change(path, CHANGED[(number - 2) % len(CHANGED)], rng, text, last)
        hashes, pages = page_hashes(path)
        facts = {"pages": pages}
        if previous is not None:
            duplicate = len(hashes & previous) / len(hashes)
            facts["duplicate_pages"] = round(duplicate, 4)
            if not DUPLICATES_ALLOWED[0] <= duplicate <= DUPLICATES_ALLOWED[1]:
                raise SystemExit(f"db v{number:02}: {duplicate:.1%} of the pages are duplicates, outside {DUPLICATES_ALLOWED}")
        out.append(base.Version(f"v{number:02}", path.parent, path.stat().st_size, facts))
        base.say(f"db v{number:02}: {path.stat().st_size / 1e6:.1f} MB, {facts}")
        previous_path, previous = path, hashes
    return base.finish("db", scale, params, out)
