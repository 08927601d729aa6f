"""The private names of torch: each still does what the trainer takes it for, and no other file touches one."""

import ast
import json
import pickle
import re
import signal
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch names it only in its __all__
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
from torch.distributed.elastic.multiprocessing.api import SubprocessContext
from torch.distributed.elastic.rendezvous import RendezvousStateError, dynamic_rendezvous

from gangway.trainer.core import torch_private
from gangway.trainer.rendezvous.elastic_rendezvous import MeetingStateError, decode_state, encode_state

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


@pytest.mark.slow
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


class _Held:
    """A backend that holds one state, as a store does."""

    name = "held"

    def __init__(self) -> None:
        self.content: bytes | None = None

    def get_state(self) -> tuple[bytes, bytes] | None:
        return None if self.content is None else (self.content, self.content)

    def set_state(self, state: bytes, token: object = None) -> tuple[bytes, bytes, bool]:
        self.content = state
        return state, state, True


def _holder(backend: _Held) -> dynamic_rendezvous._BackendRendezvousStateHolder:
    forever = timedelta(days=365)
    settings = dynamic_rendezvous.RendezvousSettings("job", 1, 2, dynamic_rendezvous.RendezvousTimeout(), forever, 9)
    return dynamic_rendezvous._BackendRendezvousStateHolder(backend, settings, cache_duration=0)  # type: ignore[arg-type]


@pytest.fixture
def _pickle_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_rendezvous, "pickle", pickle)


@pytest.mark.usefixtures("_pickle_put_back")
def test_states_of_a_rendezvous_go_through_the_store_as_we_write_them() -> None:
    torch_private.exchange_states(encode_state, decode_state, MeetingStateError)
    backend, now = _Held(), datetime.now(UTC)
    writer, reader = _holder(backend), _holder(backend)
    state = writer.state
    one, two, three = (dynamic_rendezvous._NodeDesc(name, 7, 0) for name in ("one", "two", "three"))
    state.round, state.complete, state.deadline, state.closed = 3, True, now, True
    state.participants, state.wait_list, state.redundancy_list = {one: 1}, {two}, {three}
    state.last_heartbeats = {one: now, two: now, three: now}
    assert len(vars(state)) == 8, "what torch adds to its state has to travel too"
    assert [field.name for field in fields(dynamic_rendezvous._NodeDesc)] == ["addr", "pid", "local_id"]
    writer.mark_dirty()
    assert writer.sync()
    assert json.loads(backend.content or b"")["round"] == 3
    reader.sync()
    assert vars(reader.state) == vars(state)
    for hostile in (pickle.dumps(state), b"", b"[" * 100_000):
        backend.content = hostile
        with pytest.raises(RendezvousStateError):
            reader.sync()


def test_torch_uses_pickles_for_that_alone() -> None:
    nodes = [*ast.walk(ast.parse(Path(dynamic_rendezvous.__file__).read_text("utf-8")))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"}
    assert used == {"dumps", "loads", "PickleError"}
    assert sum(isinstance(node, ast.Name) and node.id == "pickle" for node in nodes) == 3
    elastic = Path(dynamic_rendezvous.__file__).parents[1]
    unpickling = {path for path in elastic.rglob("*.py") if re.search("pickle|marshal|torch.load", path.read_text())}
    assert unpickling == {Path(dynamic_rendezvous.__file__)}, "nothing else of torchrun's reads any"


def test_the_workers_store_is_ours_where_we_serve_one(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = dynamic_rendezvous.DynamicRendezvousHandler
    monkeypatch.setattr(handler, "_create_tcp_store_server", lambda *_: "torch's")
    served: list[str] = ["ours"]
    torch_private.serve_workers_by(lambda handler: next(iter(served), None))
    made = handler.from_backend("job", HashStore(), _Held(), 1, 1)  # type: ignore[arg-type]  # a fake
    assert made._create_tcp_store_server("host", 0) == "ours"
    assert torch_private.served_store(made) is None
    served.clear()
    assert made._create_tcp_store_server("host", 0) == "torch's"


def test_the_store_of_standalone_is_ours_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import RendezvousParameters, c10d_rendezvous_backend

    monkeypatch.setattr(c10d_rendezvous_backend, "TCPStore", lambda *_, **__: HashStore())
    ours: list[timedelta] = []

    def serve(timeout: timedelta) -> HashStore:
        ours.append(timeout)
        return HashStore()

    torch_private.serve_standalone_by(serve)
    for endpoint, expected in (("localhost:0", 1), ("localhost:29400", 1), ("127.0.0.2:0", 1)):
        c10d_rendezvous_backend.create_backend(RendezvousParameters("c10d", endpoint, "job", 1, 1))
        assert len(ours) == expected, endpoint
    assert 'rdzv_endpoint = "localhost:0"' in Path(run.__file__).read_text("utf-8"), "what --standalone asks for"


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
