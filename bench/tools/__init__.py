"""One module per tool. A module `NAME.py` here with a class called `TOOL` makes `--tools NAME` work; that is all there is to it."""

import importlib
from pathlib import Path


def names():
    """The tools there are adapters for. Names on the command line may use `-` for `_`."""
    return sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "base"))


def load(name):
    """The adapter class of a tool."""
    return importlib.import_module(f"tools.{name.replace('-', '_')}").TOOL
