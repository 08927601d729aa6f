"""The private names of torch: each still does what the trainer takes it for, and no other file touches one."""

import ast
import json
import signal
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
from torch.distributed.elastic.multiprocessing.api import SubprocessContext
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from trainer.core import torch_private

REPOSITORY = Path(__file__).resolve().parents[3]
HERE = REPOSITORY / "trainer" / "core" / "torch_private.py"
_ON_MODULES = ("_compiled_call_impl", "_foreach", "_dynamo", "_functorch", "_inductor", "_overloadpacket")


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _is_dotted(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_dotted(node.value))


def private_names(source: str) -> list[str]:
    """Private names of torch that Python source imports, or reads from what it calls torch."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Attribute):
            found += [ast.unparse(node)] if _is_dotted(node) else []
            found += [f"torch.{node.attr}"] if node.attr in _ON_MODULES else []
    return [name for name in found if name.split(".")[0] in ("torch", "dist", "torch_xla") and _is_private(name)]


@pytest.mark.parametrize(
    ("source", "private"),
    [
        ("import torch._dynamo", True),
        ("from torch._C import x", True),
        ("from torch.utils._python_dispatch import TorchDispatchMode", True),
        ("from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp", True),
        ("from torch_xla._internal import tpu", True),
        ("torch._foreach_lerp_(a, b, 1)", True),
        ("loss._compiled_call_impl = None", True),
        ("dist.distributed_c10d._get_default_group()", True),
        ("from torch.distributed import GradBucket\ntorch.nn.functional.relu(self._x)\ntorch.__version__", False),
    ],
)
def test_the_rule_tells_private_names_from_public_ones(source: str, private: bool) -> None:
    assert bool(private_names(source)) is private


def test_private_names_of_torch_stand_in_one_file() -> None:
    assert private_names(HERE.read_text("utf-8"))
    for package in ("trainer", "images", "stacks", "components"):
        for path in (REPOSITORY / package).rglob("*.py"):
            if path != HERE:
                assert private_names(path.read_text("utf-8")) == [], f"{path}: goes into {HERE.name}, with a test"


def test_the_installed_torch_is_the_one_they_were_read_in() -> None:
    """After an upgrade: read each function of torch_private against the new source, then write the version there."""
    assert ".".join(version("torch").split(".")[:2]) == torch_private.CHECKED["torch"]
    locked = (REPOSITORY / "images" / "locks" / "xla.lock").read_text("utf-8")
    assert f"\ntorch-xla=={torch_private.CHECKED['torch_xla']}." in locked.replace("torch-xla[tpu]", "torch-xla")


def test_a_compiled_call_is_taken_and_put_back() -> None:
    module = nn.Linear(2, 1)
    assert torch_private.compiled_call(module) is None
    module.compile(backend="eager")
    assert torch_private.compiled_call(module) is not None
    torch_private.set_compiled_call(module, lambda x: "in its place")
    assert module(torch.ones(2)) == "in its place"
    torch_private.set_compiled_call(module, None)
    assert isinstance(module(torch.ones(2)), torch.Tensor)


def test_the_compilers_failures_are_what_it_raises() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch_private.compiler_failures()):
        torch.compile(breaks, fullgraph=True, backend="eager")(torch.ones(2))


def test_the_compilers_settings_are_still_there() -> None:
    from torch import _dynamo, _functorch

    # `patch` refuses a setting that is not there, and puts back what was.
    of_dynamo = _dynamo.config.patch(optimize_ddp=True, recompile_limit=8)
    with of_dynamo, _functorch.config.patch(force_non_lazy_backward_lowering=False):
        torch_private.compile_gradients_inside(10_000)
        assert _dynamo.config.optimize_ddp is False
        assert _dynamo.config.recompile_limit == 10_000
        assert _functorch.config.force_non_lazy_backward_lowering is True


def test_each_operation_is_noted_once() -> None:
    noted = []
    with torch_private.each_operation(lambda operation, args, kwargs, result: noted.append((operation, result.shape))):
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert noted.count((torch.ops.aten.mm, (2, 4))) == 1


def test_the_rendezvous_has_the_names_that_a_node_leaves_by() -> None:
    handler = dynamic_rendezvous.DynamicRendezvousHandler
    assert callable(handler._stop_heartbeats)
    assert callable(dynamic_rendezvous._DistributedRendezvousOpExecutor.run)
    assert callable(dynamic_rendezvous._RendezvousExitOp())
    names = {node.attr for node in ast.walk(ast.parse(Path(dynamic_rendezvous.__file__).read_text("utf-8")))
             if isinstance(node, ast.Attribute)}  # fmt: skip
    assert {"_op_executor", "_shared_tcp_store_server", "_bootstrap_store_info"} <= names


def test_ends_are_noted_where_torchrun_closes_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubprocessContext, "_close", SubprocessContext._close)  # put back afterwards
    ends: dict[int, int | None] = {1: 0}
    torch_private.note_ends(ends)
    workers = start_processes("sleeper", "sleep", {0: ("60",)}, {0: {}}, DefaultLogsSpecs())
    (process,) = workers.pids().values()
    workers.close()
    assert ends == {process: -signal.SIGTERM}


def test_the_flight_recorder_is_read_where_nothing_was_recorded() -> None:
    assert json.loads(torch_private.last_collectives())["version"]
