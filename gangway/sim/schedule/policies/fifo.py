"""First come, first served: who does not fit holds up all behind."""

from gangway.sim.schedule.policy import Grants, Policy, View, start_in_order

__all__ = ["Fifo"]


class Fifo(Policy):
    """The control that others are compared with: nobody is overtaken, nobody is moved."""

    name = "fifo"
    says = "first come, first served; the first that does not fit holds up the rest"

    def decide(self, view: View) -> Grants:
        """Starts from the front of the queue."""
        grants = view.running()
        start_in_order(grants, view, view.waiting())
        return grants
