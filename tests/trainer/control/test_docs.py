"""The policy that docs/controller.md shows decides, and mends what it is there for."""

import re
from pathlib import Path
from typing import Any

from gangway.trainer.control.interval import Knobs
from tests.trainer.control.closed_loop import Loop, Plant

REPO = Path(__file__).resolve().parents[3]


def test_the_policy_of_the_docs_works_as_printed() -> None:
    (text,) = re.findall(r"```python\n(.*?)```", (REPO / "docs/controller.md").read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(text, names)
    assert len(text.splitlines()) <= 30
    loop = Loop(
        Plant(read_sec=0.006, compute_sec=0.002), Knobs(batch_size=64, threads=1), policy=names["MoreLoaders"]()
    )
    run = loop.run()
    assert run.history[-1].knobs.loader_threads == 3
    assert run.goodput > 2 * loop.at()
