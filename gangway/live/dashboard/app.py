"""The dashboard's pages as a Starlette application. Handlers run in threads, read memory, and at most a few files."""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.jobs.job_folders import RUN_FOLDER, FolderEngine
from gangway.live.dashboard.access import Access, Guard
from gangway.live.dashboard.actions import Action, ActionLog, carry_out, get_actions
from gangway.live.dashboard.charts import MOST_SERIES
from gangway.live.dashboard.figures import (
    RunReader,
    RunView,
    compared_charts,
    compared_figures,
    get_devices,
    get_figures,
    run_charts,
)
from gangway.live.dashboard.files import MOST_LOG_BYTES, clip, log_text, read_part
from gangway.live.dashboard.index import STATES, RunIndex, RunRow, below
from gangway.live.dashboard.query import SORTS, JobQuery, RunQuery, get_page, page_number
from gangway.live.dashboard.sources import JobRow, Queue, Reading, Stack, Suite, SuiteCache, Watched, read_log_end
from gangway.render.rendering import Sources, duration, kimg_text, moment, number, unit_text
from gangway.trainer.core.regular_files import read_regular

MOST_PAGE_BYTES = 300_000
_MOST_PICTURE_BYTES = 16_000_000
_MOST_DECISIONS, _MOST_ENGINE_LOGS, _LOG_SEC = 30, 16, 5.0
_MOST_CARDS = 20
_HERE = Path(__file__).parent
_RENDER = _HERE.parent.parent / "render"
_PICTURE = re.compile(r"(?:samples|reals)\.png|[0-9]{1,12}kimg\.png")
_PNG = b"\x89PNG\r\n\x1a\n"
_STATIC: Mapping[str, tuple[Path, str]] = {
    "htmx.min.js": (_HERE / "static" / "htmx.min.js", "text/javascript"),
    "icon.svg": (_HERE / "static" / "icon.svg", "image/svg+xml"),
    "dashboard.css": (_HERE / "static" / "dashboard.css", "text/css"),
    "report.css": (_RENDER / "report.css", "text/css"),
}


@dataclass
class Board:
    """All that the pages show. `action_log`: None if nothing may be changed."""

    index: RunIndex
    queues: Mapping[str, Queue] = field(default_factory=dict)
    stacks: Sequence[Stack] = ()
    suite_folders: Sequence[Path] = ()
    action_log: ActionLog | None = None
    reader: RunReader = field(default_factory=RunReader)
    _suites: SuiteCache = field(default_factory=SuiteCache)
    _logs: dict[tuple[str, str], Watched[str]] = field(default_factory=dict)

    def job_rows(self) -> list[JobRow]:
        """Of all queues, as last read."""
        return [row for queue in self.queues.values() for row in queue.jobs.get().value or ()]

    def suites(self) -> list[Suite]:
        """Found among the runs or named; their journals are read if they have changed."""
        folders = dict.fromkeys([*self.suite_folders, *self.index.suites])
        return self._suites.read(list(folders)[:_MOST_CARDS])

    def log(self, queue: Queue, job_id: str) -> Reading[str]:
        """The end of a job's log: from its file, or as a thread has last asked its engine."""
        if isinstance(queue.site.engine, FolderEngine):
            log = Watched(lambda: read_log_end(queue.site.engine, job_id), _LOG_SEC)
            log.refresh()
            return log.peek()
        while len(self._logs) >= _MOST_ENGINE_LOGS and (queue.key, job_id) not in self._logs:
            self._logs.pop(next(iter(self._logs)), None)
        watched = Watched(lambda: read_log_end(queue.site.engine, job_id), _LOG_SEC)
        return self._logs.setdefault((queue.key, job_id), watched).get()


def get_app(board: Board, access: Access) -> ASGIApp:
    """The application; actions have no route unless they are allowed."""
    routes = [
        Route("/", _overview),
        Route("/runs", _runs),
        Route("/runs/{key}", _run),
        Route("/runs/{key}/pictures/{name}", _picture),
        Route("/compare", _compare),
        Route("/jobs", _jobs),
        Route("/jobs/{queue}/{job}", _job),
        Route("/suites", _suites),
        Route("/suites/{key}", _suite),
        Route("/static/{name}", _static),
    ]
    if board.action_log is not None:
        routes += [
            Route("/jobs/{queue}/{job}/{action}", _confirm),
            Route("/jobs/{queue}/{job}/{action}", _act, methods=["POST"]),
        ]
    app = Starlette(routes=routes, exception_handlers={InputError: _mistake, HTTPException: _no_page})
    app.state.board, app.state.access = board, access
    return Guard(app, access)


@cache
def _environment() -> Environment:
    loader = FileSystemLoader([_HERE / "templates", _RENDER])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"duration": duration, "kimg": kimg_text, "moment": moment, "unit": unit_text}
    environment.filters |= {"number": _number, "when": _when, "minute": _minute, "clip": clip}
    return environment


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else number(value, unit)


def _when(at: float | datetime | None) -> str:
    """Seconds since 1970 or a time, to the second."""
    if at is None:
        return "-"
    try:
        found = at.astimezone(UTC) if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    except (OSError, OverflowError, ValueError):
        return "-"
    return f"{found:%Y-%m-%d %H:%M:%S} UTC"


def _minute(at: float | datetime | None) -> str:
    """The same for a table whose heading says UTC."""
    return _when(at)[:16]


def _board(request: Request) -> Board:
    board: Board = request.app.state.board
    board.index.want()
    return board


def _show(request: Request, name: str, title: str, code: int = 200, **context: Any) -> Response:
    """A page, or what is live of it if htmx asks. No page is larger than MOST_PAGE_BYTES."""
    board = _board(request)
    path = request.url.path
    values = {
        "title": title,
        "page": name,
        "section": path.split("/")[1],
        "url": f"{path}?{request.url.query}" if request.url.query else path,
        "progress": board.index.progress,
        "can_act": board.action_log is not None,
        "is_paused": request.query_params.get("live") == "0",
        "pause_url": str(request.url.include_query_params(live="0").replace(scheme="", netloc="")),
        "live_url": str(request.url.remove_query_params("live").replace(scheme="", netloc="")),
        "now": time.time(),
        **context,
    }
    is_live = request.headers.get("hx-request")
    names = [f"{name}.live.html.j2"] if is_live else [f"{name}.page.html.j2", "base.html.j2"]
    content = _environment().select_template(names).render(values).encode()
    if len(content) > MOST_PAGE_BYTES:
        return _message(request, "Too large", f"This page would have {len(content):,} bytes.", "Narrow it down.", 500)
    return HTMLResponse(content, code)


def _message(request: Request, title: str, problem: str, fix: str, code: int) -> Response:
    return _show(request, "message", title, code, problem=clip(problem, 1000), fix=clip(fix, 1000))


def _mistake(request: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    value = "" if error.value is None else f" (got {error.value!r}; allowed: {error.allowed})"
    return _message(request, "That does not work", f"{error.place}: {error.problem}{value}", error.fix, 400)


def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    fix = "It may have been removed, or the index may not have found it yet."
    return _message(request, error.detail, request.url.path, fix, error.status_code)


def _find_run(request: Request) -> RunRow:
    row = _board(request).index.by_key.get(request.path_params["key"])
    if row is None:
        raise HTTPException(404, "No such run")
    return row


def _overview(request: Request) -> Response:
    board = _board(request)
    newest = sorted(board.index.rows, key=lambda row: row.at, reverse=True)[:10]
    queues = []
    for queue in list(board.queues.values())[:_MOST_CARDS]:
        reading = queue.jobs.get()
        counts = Counter(row.status.phase for row in reading.value or ())
        running = [row for row in reading.value or () if row.status.phase is Phase.RUNNING]
        queues.append((queue, reading, counts[Phase.WAITING], running[:5], len(running)))
    return _show(
        request,
        "overview",
        "Overview",
        stacks=[(stack.name, stack.view.get()) for stack in board.stacks[:_MOST_CARDS]],
        queues=queues,
        rows=newest,
        total=len(board.index.rows),
        suites=board.suites()[:5],
    )


def _runs(request: Request) -> Response:
    index, query = _board(request).index, RunQuery.of(request.query_params)
    shown = query.find(index.rows)
    return _show(
        request, "runs", "Runs", query=query, found=shown, presets=index.presets[:100], states=STATES, sorts=SORTS,
        most=MOST_SERIES,
    )  # fmt: skip


def _run(request: Request) -> Response:
    board, row = _board(request), _find_run(request)
    view, problem = board.reader.read(row), ""
    try:
        decisions = view.lines.decisions[-_MOST_DECISIONS:]
    except ValueError as error:
        decisions, problem = (), clip(f"decisions: {error}", 300)
    record = view.run.record if view.run else None
    sources = Sources()
    return _show(
        request,
        "run",
        f"Run {row.id}",
        row=row,
        view=view,
        record=record,
        problems=[each for each in (view.problem, problem) if each],
        state=row.state(time.time()),
        figures=[(label, sources.figure(figure)) for label, figure in get_figures(view).items()],
        devices=get_devices(view.lines),
        charts=run_charts(view),
        controller=view.lines.controller,
        decisions=[(one.at, one.images, clip(one.sentence, 300)) for one in reversed(decisions)],
        pictures=_picture_names(row),
        log=_run_log(row),
    )


def _run_log(row: RunRow) -> tuple[str, str]:
    """The end of the log that a suite or a queue of jobs keeps of a run, and its name."""
    places = [below(row, "train.log")]
    if row.path.name == RUN_FOLDER and "/" in row.name:
        places.append(f"{row.name.rpartition('/')[0]}/log")
    for place in places:
        try:
            return log_text(read_part(row.root, place, -1, MOST_LOG_BYTES).content), place
        except OSError:
            continue
    return "", ""


def _picture_names(row: RunRow) -> list[str]:
    """The newest grid of samples, and the real images."""
    try:
        grids = [name for name in os.listdir(row.path / "samples") if _PICTURE.fullmatch(name)]  # noqa: PTH208
    except OSError:
        grids = []
    others = [name for name in ("samples.png", "reals.png") if (row.path / name).is_file()]
    newest = [] if "samples.png" in others else sorted(grids, key=lambda name: name.zfill(32))[-1:]
    return [*newest, *others]


def _picture(request: Request) -> Response:
    row, name = _find_run(request), request.path_params["name"]
    if not _PICTURE.fullmatch(name):
        raise HTTPException(404, "No such picture")
    place = below(row, f"samples/{name}" if name.endswith("kimg.png") else name)
    try:
        content = read_regular(row.root, place, _MOST_PICTURE_BYTES)
    except OSError:
        raise HTTPException(404, "No such picture") from None
    if not content.startswith(_PNG):
        raise HTTPException(404, "Not a PNG picture")
    return Response(content, media_type="image/png")


def _compare(request: Request) -> Response:
    board = _board(request)
    keys = list(dict.fromkeys(request.query_params.getlist("run")))
    if not 2 <= len(keys) <= MOST_SERIES:
        allowed = f"2 to {MOST_SERIES} runs"
        raise InputError("run", f"{len(keys)} runs", allowed=allowed, fix="choose them in the table of runs")
    rows = [board.index.by_key.get(key) for key in keys]
    views: list[RunView] = [board.reader.read(row) for row in rows if row is not None]
    if len(views) < len(keys):
        raise HTTPException(404, "No such run")
    sources = Sources()
    figures = [(label, [sources.figure(figure) for figure in of_runs]) for label, of_runs in compared_figures(views)]
    charts = compared_charts(views)
    return _show(
        request, "compare", "Compare runs", views=views, figures=figures, charts=charts, sources=sources
    )  # fmt: skip


def _jobs(request: Request) -> Response:
    board, query = _board(request), JobQuery.of(request.query_params)
    rows = board.job_rows()
    users = sorted({row.status.user for row in rows if row.status.user})[:100]
    readings = [(queue.label, queue.jobs.get()) for queue in list(board.queues.values())[:_MOST_CARDS]]
    return _show(
        request, "jobs", "Jobs", query=query, found=query.find(rows), phases=[*Phase], users=users,
        queues=list(board.queues.values())[:100], readings=readings,
    )  # fmt: skip


def _find_job(request: Request) -> tuple[Queue, JobRow]:
    queue = _board(request).queues.get(request.path_params["queue"])
    row = queue.find(request.path_params["job"]) if queue else None
    if queue is None or row is None:
        raise HTTPException(404, "No such job")
    return queue, row


def _job(request: Request) -> Response:
    board = _board(request)
    queue, row = _find_job(request)
    run = None if queue.folder is None else board.index.find(queue.folder / row.status.id / RUN_FOLDER)
    return _show(
        request,
        "job",
        f"Job {clip(row.status.id)}",
        job=row.status,
        row=row,
        queue=queue,
        run=run,
        log=board.log(queue, row.status.id),
        actions=get_actions(queue, row.status) if board.action_log else (),
    )


def _find_action(request: Request) -> tuple[Queue, JobRow, Action]:
    queue, row = _find_job(request)
    for action in get_actions(queue, row.status):
        if action.name == request.path_params["action"]:
            return queue, row, action
    raise HTTPException(404, "No such action for this job now")


def _confirm(request: Request) -> Response:
    queue, row, action = _find_action(request)
    token = request.app.state.access.form_token(request.url.path)
    title = f"{action.label}: {clip(row.status.id)}"
    return _show(request, "confirm", title, action=action, job=row.status, queue=queue, form_token=token)


async def _act(request: Request) -> Response:
    form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=4)
    return await run_in_threadpool(partial(_carry_out, request, form.get("form_token", [""])[0]))


def _carry_out(request: Request, form_token: str) -> Response:
    if not request.app.state.access.is_form_token(request.url.path, form_token):
        raise HTTPException(403, "The form is not from this dashboard")
    queue, row, action = _find_action(request)
    log = _board(request).action_log
    assert log is not None, "else there is no such route"
    result = carry_out(queue, row.status.id, action, log)
    return RedirectResponse(f"/jobs/{queue.key}/{result}", 303)


def _suites(request: Request) -> Response:
    return _show(request, "suites", "Suites", suites=[_progress(request, suite) for suite in _board(request).suites()])


def _progress(request: Request, suite: Suite) -> tuple[Suite, list[tuple[str, int, Counter[str], float]]]:
    """Per arm: label, number of runs, counts by state, and the share of all images that was shown."""
    arms = []
    for label, runs in suite.arms[:_MOST_CARDS]:
        shares = [1.0 if run.state == "recorded" else _share(_find_suite_run(request, run.run)) for run in runs]
        arms.append((label, len(runs), Counter(run.state for run in runs), sum(shares) / len(runs)))
    return suite, arms


def _share(row: RunRow | None) -> float:
    return min(1.0, row.images / 1000 / row.kimg) if row is not None and row.kimg > 0 else 0.0


def _find_suite_run(request: Request, folder: Path) -> RunRow | None:
    return _board(request).index.find(folder)


def _suite(request: Request) -> Response:
    suite = next((each for each in _board(request).suites() if each.key == request.path_params["key"]), None)
    if suite is None:
        raise HTTPException(404, "No such suite")
    shown = get_page(suite.runs, page_number(request.query_params), len(suite.runs))
    rows = [(run, _find_suite_run(request, run.run)) for run in shown.rows]
    _, arms = _progress(request, suite)
    return _show(request, "suite", f"Suite {suite.name}", suite=suite, arms=arms, found=shown, rows=rows)


def _static(request: Request) -> Response:
    path, kind = _STATIC.get(request.path_params["name"], (None, ""))
    if path is None:
        raise HTTPException(404, "No such file")
    return Response(path.read_bytes(), media_type=kind, headers={"cache-control": "private, max-age=3600"})
