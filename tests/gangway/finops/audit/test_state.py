"""A state that cannot be read: what to do about it is said in full, with the stack's name and the flag for none."""

import subprocess
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.finops.audit import state


def test_every_way_in_which_there_is_no_state_names_the_flag_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("pulumi", 300)

    def refusing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "error: no stack named 'mine' found")

    monkeypatch.setattr(state, "which", lambda _: "/usr/bin/pulumi")
    for run, message in (
        (slow, "pulumi: no answer in 300 s"),
        (refusing, "pulumi stack export --stack mine: failed: error: no stack named 'mine' found"),
    ):
        monkeypatch.setattr(subprocess, "run", run)
        with pytest.raises(InputError) as caught:
            state.export_state("mine", tmp_path)
        assert str(caught.value).startswith(message)
        assert "pulumi stack export --stack mine --file state.json" in caught.value.fix
        assert "--no-state" in caught.value.fix
    for text in (None, "{", '{"version": 3}'):
        path = tmp_path / "state.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(InputError, match=f"--state {path}: (.|\n)*--no-state"):
            state.read_state(path)
