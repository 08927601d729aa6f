"""The line of a plan about one quota."""

from gangway.components.core.findings import Finding
from gangway.components.core.quotas import QuotaNeed, count_nodes, no_quota

NEED = QuotaNeed("gangway:cluster", 1536, "vCPUs", "L-1 (P)", "us-east-2", "8 nodes", "aws x", "a note", "ask")


def test_a_need_says_how_much_of_what_where_for_whom_and_how_to_look() -> None:
    assert NEED.finding() == Finding.info(
        "capacity.quota",
        "gangway:cluster",
        "1,536 vCPUs of the quota L-1 (P) in us-east-2, for 8 nodes; `aws x` shows the limit; a note",
        "ask",
    )


def test_what_is_left_out_leaves_no_gap() -> None:
    need = QuotaNeed("gangway:network", 1, "", "VPCs", "us-east-2", "", "aws x")
    assert need.finding().message == "1 of the quota VPCs in us-east-2; `aws x` shows the limit"
    assert no_quota("p", "it is reserved").message == "no quota: it is reserved"
    assert (count_nodes(1), count_nodes(4), count_nodes(2, "slice")) == ("1 node", "4 nodes", "2 slices")
