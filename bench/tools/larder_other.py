"""Another build of Larder beside this work tree's, to see the cost of a change. `BENCH_LARDER_OTHER` names its binary."""

from tools.larder import Larder


class LarderOther(Larder):
    name = "larder-other"
    binary = "larder-other"


TOOL = LarderOther
