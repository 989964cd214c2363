"""Pure functions that decide which agents are in the next world, and when this world may form.

``decide(observation, now)`` takes everything that a coordinator knows and returns one frozen
action. The coordinator carries out the action, observes the result, and calls ``decide`` again
until there is nothing to do. Decisions keep no state, so the successor of a killed coordinator
makes the same decision. Times are seconds of the coordinator's monotonic clock. A decision takes
O(n log n) for n agents, and a heartbeat requires no decision.

    deciding      the order of the rules
    ending        reasons to end a world: its end or failure, its owner, members that leave
    sizing        compares the world's size with the desired size
    changing      a planned change: prepared, then at a safe point
    preparing     the next world is made ready while this one trains
    in_process    changes that end no process
    forming       the next world, once no worker runs
    leaving       members that announced that they leave, and agents that are released
    taking_over   agents that may form a world while others are silent
    facts         questions that several of these modules ask
"""

from launcher.coordinator.membership.deciding import decide
from launcher.coordinator.membership.taking_over import may_form, may_renew, next_epoch, quorum_at

__all__ = ["decide", "may_form", "may_renew", "next_epoch", "quorum_at"]
