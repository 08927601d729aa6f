"""The one package of the wheel: Gangway's five packages lie under `gangway_iac/_tree`.

So another project's environment has no such names at its top; only a process that asks here can import them.
"""

import signal
import sys

_before = signal.getsignal(signal.SIGINT)
"""Python's own handler; another where SIGINT is ignored, as in a background job."""
if _before is signal.default_int_handler and sys.argv[:1] and sys.argv[0].rpartition("/")[2] == "gangway":
    # In the `gangway` script, and in no process that only imports this: until the command runs, Ctrl-C ends it as a
    # signal does, without a traceback: 130 in a shell. What Python itself does before this line is not ours.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Nothing else here: Ctrl-C in another process than that script's ends with a traceback until `main` is called.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


def _tree() -> "Path":
    """The folder that holds the five packages: in the wheel beside this file, in a checkout its top."""
    from pathlib import Path

    here = Path(__file__).resolve().parent
    return here / "_tree" if (here / "_tree").is_dir() else here.parents[2]


def add_to_path() -> None:
    """Makes the five packages importable in this process and those that it starts."""
    import os

    tree, inherited = str(_tree()), os.environ.get("PYTHONPATH")
    if tree in sys.path:  # as in an editable install, or in a process that one of ours has started
        return
    sys.path.insert(0, tree)
    os.environ["PYTHONPATH"] = f"{tree}{os.pathsep}{inherited}" if inherited else tree


def main() -> None:
    """The `gangway` command."""
    if _before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    add_to_path()
    from gangway.cli.main import main as run_command

    signal.signal(signal.SIGINT, _before)
    run_command()


def run_program() -> None:
    """Gangway's Pulumi program, for the `__main__.py` of a project outside a checkout."""
    from runpy import run_module

    add_to_path()
    run_module("stacks", run_name="__main__")


def run_policy_pack() -> None:
    """Gangway's guardrails, for the `__main__.py` of a policy pack outside a checkout."""
    from runpy import run_module

    add_to_path()
    run_module("stacks.policy", run_name="__main__")


def load(module: str, name: str) -> "Any":
    """Returns an instance of a Gangway class, for Pulumi's process of dynamic resources."""
    from importlib import import_module

    add_to_path()
    return getattr(import_module(module), name)()
