"""Decide which agents are in the next world, and when it may form. SPINE of the launcher: pure.

``decide(observation, now)`` looks at everything a coordinator knows and returns one frozen action;
the coordinator carries the action out, observes the result and asks again until the answer is to
stay. No action keeps state: if a coordinator is killed at any moment, its successor asks the same
question. Times are seconds of the coordinator's monotonic clock. A decision takes O(n log n) for n
agents, and a heartbeat needs none.

    deciding      the order of the questions
    ending        what ends a world: by itself, by its owner, by members that leave
    sizing        the desired size beside the world's
    changing      a planned change: prepared, then at a safe point
    preparing     the next world is made ready while this one trains
    in_process    changes that end no process
    forming       the next world, once no worker runs
    leaving       agents that gave notice, agents that are let go
    taking_over   agents that may form a world while others are silent
    facts         questions that several of these modules ask
"""

from launcher.coordinator.membership.deciding import decide
from launcher.coordinator.membership.taking_over import may_form, may_renew, next_epoch, quorum_at

__all__ = ["decide", "may_form", "may_renew", "next_epoch", "quorum_at"]
