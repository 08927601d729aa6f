"""A policy for the controller: another loader thread while images are waited for."""

from collections.abc import Sequence

from gangway.trainer.control.interval import Decision, Interval, Room


class MoreLoaders:
    """Another loader thread while images are waited for."""

    name = "more-loaders"

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `gangway.trainer.control.interval.Policy`."""
        last = history[-1]
        if last.loader_share < 0.2:
            return None
        now = last.knobs.loader_threads
        more = [value for value in room.allowed.get("loader_threads", ()) if isinstance(value, int) and value > now]
        if not more:
            return None
        why = f"images were waited for {last.loader_share:.0%} of the time"
        return Decision("loader_threads", more[0], now, self.name, why, last.loader_share, "it brings too little")
