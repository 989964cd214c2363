"""Who is in the next world, and when it may form. SPINE of the launcher: pure.

``decide(sight, now)`` looks at everything a coordinator knows and returns one frozen action; the
coordinator carries it out, sees what came of it and asks again until the answer is to stay. No
action remembers anything: a coordinator that was killed at any moment is replaced by another one
which asks the same question. Times are seconds of the coordinator's monotonic clock.

    deciding      the order of the questions
    ending        what ends a world by itself, and what its owner wants
    leaving       members that gave notice, agents that are let go
    sizing        the wished size beside the world's
    changing      a planned change: prepared, then at a safe point
    forming       the next world, once no worker runs
    arranging     who is in it, in which order
    taking_over   who may form one while others are silent
    facts         what several of them ask
"""

from launcher.membership.arranging import arrange, fit
from launcher.membership.deciding import decide
from launcher.membership.taking_over import may_form, next_epoch

__all__ = ["arrange", "decide", "fit", "may_form", "next_epoch"]
