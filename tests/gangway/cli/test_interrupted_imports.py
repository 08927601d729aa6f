"""Ctrl-C while a command is still importing: it ends as SIGINT ends a program, or says so in a sentence."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import REPO

# Starts a command as its script, or `python -m`, does, and is sent SIGINT when it looks for its so many-th module; at
# the end it prints how many those were.
PROGRAM = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
at, sys.argv = int(sys.argv[1]), sys.argv[2:]
class Finder:
    count = 0
    def find_spec(self, name, path=None, target=None):
        self.count += 1
        if self.count == at:
            os.kill(os.getpid(), signal.SIGINT)
finder = Finder()
end = os._exit
def exit(code):
    print("looked for", finder.count, file=sys.__stderr__)
    sys.__stderr__.flush()
    end(code)
if at == 0:
    import atexit
    os._exit = exit
    atexit.register(exit, 0)
sys.meta_path.insert(0, finder)
if sys.argv[0] == "gangway":
    from gangway.entry import main
    main()
else:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
OF_PYTHON = {"gangway": 2, "gangway.cli": 4, "gangway.trainer": 4}
"""Modules that are looked for before the first line of ours: the package, its `__main__`."""
QUICK = ("gangway plan aws-demo", "gangway.cli job list", "gangway.trainer presets")
SLOW = ("gangway tco --accelerator H100x8", "gangway.trainer sample --run-dir x --out x.png")


def _run(at: int, words: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(at), *words], cwd="/", text=True,
        env={**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "moments"),
    [*((line, 6) for line in QUICK), *(pytest.param(line, 40, marks=pytest.mark.slow) for line in SLOW)],
)
def test_an_early_interrupt_ends_quietly(line: str, moments: int) -> None:
    words = line.split()
    _, text = _run(0, words)
    assert "looked for" in text, text
    total = int(text.rpartition("looked for ")[2])
    first = OF_PYTHON[words[0]] + 1
    at = sorted({first, first + 1, first + 10, *(total * step // moments for step in range(1, moments))})
    with ThreadPoolExecutor(2) as pool:
        ends = dict(zip(at, pool.map(lambda moment: _run(moment, words), at), strict=True))
    loud = {
        moment: end
        for moment, end in ends.items()
        if end not in {(-signal.SIGINT, ""), (130, "")} and not (end[0] == 75 and end[1].startswith("interrupted: "))
    }
    assert loud == {}
