"""How OpenMP's threads wait: set before torch is loaded, and only where the user has not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.trainer.core.openmp import WAIT_POLICY
from tools.bench.runs import environment

_TORCH = f"""
import os
print("loading torch with", os.environ.get("{WAIT_POLICY}"))
os._exit(7)
"""
"""A package of that name which shows the environment it is loaded in, and ends the process."""


@pytest.mark.parametrize(("given", "wanted"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
@pytest.mark.parametrize("module", ["gangway.trainer", "gangway.cli"])
def test_threads_wait_passively_before_torch_is_loaded(
    module: str, given: str | None, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(_TORCH)
    variables = {key: value for key, value in os.environ.items() if key != WAIT_POLICY}
    variables |= {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"} | ({WAIT_POLICY: given} if given else {})
    argv = [sys.executable, "-m", module, "train", "--preset", "dcgan-digits", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (7, f"loading torch with {wanted}"), done.stderr


def test_peers_of_a_benchmark_wait_as_the_trainer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    assert environment(2)[WAIT_POLICY] == "PASSIVE"
    monkeypatch.setenv(WAIT_POLICY, "ACTIVE")
    assert environment(2)[WAIT_POLICY] == "ACTIVE"
