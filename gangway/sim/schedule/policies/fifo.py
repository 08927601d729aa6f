"""First come, first served: a job that does not fit blocks all behind it."""

from gangway.sim.schedule.policy import Grants, Policy, View, start_in_order

__all__ = ["Fifo"]


class Fifo(Policy):
    """The control: no overtaking, no moves."""

    name = "fifo"
    says = "first come, first served; the first that does not fit holds up the rest"

    def decide(self, view: View) -> Grants:
        """Start from the front of the queue."""
        grants = view.running()
        start_in_order(grants, view, view.waiting())
        return grants
