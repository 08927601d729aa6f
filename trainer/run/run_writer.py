"""The files of one session, open in the one worker that writes them: stats.jsonl, checkpoints and its listeners.

Opening them determines the session's number and reports damage that earlier sessions left.
"""

from pathlib import Path

from gangway.trainer.checkpoint.async_saver import SAVE_FAILURES, Saved, Saver
from gangway.trainer.checkpoint.resume import Restored, find_damage
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.records.digest import identify
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.records.stats_log import Line, StatsWriter, read_stats_log
from gangway.trainer.run.session_setup import RunOptions
from gangway.trainer.telemetry.collapse import EVENT
from gangway.trainer.telemetry.prometheus import MetricsEndpoint
from gangway.trainer.telemetry.tracking import TrackedRun, open_feeds


class RunWriter:
    """One session's open files; writes `config`. Raises TrainerError: not writable, or parts of two runs.

    Attributes:
        past_hints: causes of hints that earlier sessions gave.
        say: prints a sentence for the user; also called by trackers' threads, which stop no run.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrainConfig,
        context: RunContext,
        options: RunOptions,
        endpoint: MetricsEndpoint | None,
        data: ShardedImages,
        restored: Restored,
        images: int,
    ) -> None:
        stats_log = read_stats_log(run_dir)
        identity = identify(run_dir, stats_log, restored.identity, context.run_id, config.preset, data.index.sha256)
        self.past_hints = frozenset(str(line.get("cause")) for line in stats_log.lines if line.get("event") == EVENT)
        damage = list(find_damage(run_dir, stats_log, identity, restored))
        self._dir = run_dir
        self.write_config(config)
        self.identity, self.say = identity, options.say
        self.saver: Saver = Saver(run_dir / "checkpoints", config, identity, self.saved)
        run = TrackedRun(identity.run_id, identity.session, images, run_dir, config.model_dump(mode="json"))
        self._feeds = open_feeds(options.track, run, self.say)
        listeners = [self._feeds.show, *([endpoint.show] if endpoint is not None else [])]
        self._stats = StatsWriter(run_dir, echo=options.log_json, listeners=listeners)
        for sentence, event, details in damage:
            self.say(sentence)
            self.event(event, images, **details)

    def write_config(self, config: TrainConfig) -> None:
        """Writes config.json (TrainerError: not writable)."""
        write_atomically(self._dir / "config.json", config.to_json().encode())

    def event(self, event: str, images: int, **details: object) -> None:
        """Writes an event to stats.jsonl; also called by the thread that saves."""
        self._stats.event(event, images, self.identity.session, **details)

    def line(self, line: Line) -> None:
        """Writes a statistics line."""
        self._stats.write({**line, "session": self.identity.session})

    def picture(self, path: Path, images: int) -> None:
        """Sends the trackers a picture that is on disk."""
        self._feeds.picture(path, images)

    def close(self, status: str) -> None:
        """Waits for the running save and the trackers; `status` is done, interrupted or failed."""
        try:
            self.saver.wait()
        except SAVE_FAILURES as error:  # another error is being reported already
            why = error.headline if isinstance(error, TrainerError) else str(error)
            self.say(f"the last checkpoint failed too: {why}")
        self._feeds.close(status)

    def saved(self, saved: Saved) -> None:
        """Writes an event for a checkpoint on disk; called by the thread that saves."""
        noticed = {"why": saved.why} if saved.why else {}
        self.event(
            "checkpoint", saved.images, file=saved.path.name, sec=saved.sec, stall_sec=saved.stall_sec, **noticed
        )
