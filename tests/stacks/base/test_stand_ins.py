"""Stand-ins of names: the same in every process, and no letter of them compresses."""

import gzip

from gangway.stacks.base.stand_ins import stand_in, stand_in_digest


def test_a_stand_in_is_always_the_same() -> None:
    assert stand_in("bucket", 12) == "59q93nxm8tsq"


def test_stand_ins_share_nothing_and_do_not_compress() -> None:
    names = "".join(stand_in(purpose, 200) for purpose in ("bucket", "group", "file system"))
    least = len(names) * 5.17 / 8  # bits of one of 36 letters
    assert len(gzip.compress(names.encode(), mtime=0)) > least


def test_a_digest_is_one() -> None:
    assert len(bytes.fromhex(stand_in_digest().removeprefix("sha256:"))) == 32
