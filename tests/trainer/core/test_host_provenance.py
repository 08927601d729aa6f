"""What a run was computed with: a hash of the code and the versions behind the numbers."""

from gangway.trainer.core.host import code_sha256, versions


def test_the_code_hash_is_stable() -> None:
    assert code_sha256() == code_sha256()
    assert len(code_sha256()) == 64


def test_the_versions_are_those_of_what_computes() -> None:
    assert versions().keys() == {"python", "cpu", "torch", "numpy", "scikit-learn", "pydantic"}
    assert all(versions().values())
