"""The machine's boot has a name where the kernel gives it one."""

import re
from pathlib import Path

import pytest

from gangway.trainer.core.host import boot_id


def test_a_boot_has_one_name() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", boot_id())


def test_a_kernel_that_has_none_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.core.host._BOOT_ID", tmp_path / "boot_id")
    assert boot_id() == ""
