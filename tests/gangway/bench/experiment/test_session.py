"""`gangway bench run` of an experiment: options that do not go with it, and what is said before anything is begun."""

from pathlib import Path

import pytest

from gangway.cli.main import main


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (["resource-aware", "--treatment", "rulez"], "--treatment"),
        (["resource-aware", "--data", "shards"], "--data"),
        (["resource-aware", "--backend-url", "file://x"], "--backend-url"),
        (["local-smoke", "--local", "--small"], "--small"),
        (["local-smoke", "--local", "--treatment", "rules"], "--treatment"),
    ],
)
def test_options_that_nothing_would_heed_are_refused(
    argv: list[str],
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["gangway", "bench", "run", *argv, "--out", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{place}: " in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
