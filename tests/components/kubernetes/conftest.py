"""A cluster of two teams, and one of many, as specifications."""

import pytest

from gangway.components.kubernetes.spec import GPU, ClusterSpec, Flavor, Node, Team

NODE = Node(192, 2040, {GPU: 8, "vpc.amazonaws.com/efa": 32})
JOBS = Flavor("p5-48xlarge", {"gangway.dev/pool": "jobs"})


@pytest.fixture
def two_teams() -> ClusterSpec:
    """Of eight nodes, of which two are nobody's."""
    return ClusterSpec((Team("vision", 4), Team("speech", 2)), NODE, 8, (JOBS,))


@pytest.fixture
def many_teams() -> ClusterSpec:
    """A thousand nodes in fifty teams and two flavors."""
    teams = tuple(Team(f"team-{number}", 20) for number in range(50))
    blocks = Flavor("blocks", {"gangway.dev/pool": "blocks"}, ("network/layer-1", "kubernetes.io/hostname"))
    return ClusterSpec(teams, NODE, 1000, (blocks, JOBS), fair_sharing=True)
