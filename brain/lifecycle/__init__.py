"""The states of jobs, plans and worlds, and the rules by which these change.

This package is pure and does no I/O.

Every function takes a transaction and frozen values, and changes states according to the tables of
``brain.types``. In the same transaction it writes an event and, if a person or program acted, an
audit entry. It returns the stored value. ``brain.cycle`` and the routes call these functions, so
each rule exists once.
"""

from brain.lifecycle.advising import lift_advise_only
from brain.lifecycle.amounts import fell_short, propose_amounts, recent_use
from brain.lifecycle.applying import apply, lapse
from brain.lifecycle.batches import rebatch, tune, worths
from brain.lifecycle.choosing import choose
from brain.lifecycle.desired import (
    beyond_bounds,
    effective_mode,
    freeze_reason,
    frozen,
    may_act,
    standing,
    wish,
    wish_versions,
    wished,
)
from brain.lifecycle.earlier import hear
from brain.lifecycle.edits import edit
from brain.lifecycle.jobs import (
    admit,
    cancel,
    end,
    freeze,
    preempt,
    read_ahead,
    requeue,
    resume,
    submit,
    suspend,
    thaw,
)
from brain.lifecycle.judgement import judge
from brain.lifecycle.mirrored import mirror, object_says
from brain.lifecycle.nodes import expected, forget_gone, heard, silent
from brain.lifecycle.plans import (
    begin,
    expire,
    fail,
    forsaken,
    inconclusive,
    obstacle,
    proceed,
    propose,
)
from brain.lifecycle.proposals import (
    give_way,
    outdated,
    renew,
    waits_for_approval,
    withdraw,
)
from brain.lifecycle.replicas import replicas_reported
from brain.lifecycle.requests import alone, approve, clamp, refusal, reject, request, rollback
from brain.lifecycle.restarts import overtaken, propose_restart, unfreed
from brain.lifecycle.verdicts import newest_verdict, verdicts
from brain.lifecycle.worlds import world_reported

__all__ = [
    "admit",
    "alone",
    "apply",
    "approve",
    "begin",
    "beyond_bounds",
    "cancel",
    "choose",
    "clamp",
    "edit",
    "effective_mode",
    "end",
    "expected",
    "expire",
    "fail",
    "fell_short",
    "forget_gone",
    "forsaken",
    "freeze",
    "freeze_reason",
    "frozen",
    "give_way",
    "hear",
    "heard",
    "inconclusive",
    "judge",
    "lapse",
    "lift_advise_only",
    "may_act",
    "mirror",
    "newest_verdict",
    "object_says",
    "obstacle",
    "outdated",
    "overtaken",
    "preempt",
    "proceed",
    "propose",
    "propose_amounts",
    "propose_restart",
    "read_ahead",
    "rebatch",
    "recent_use",
    "refusal",
    "reject",
    "renew",
    "replicas_reported",
    "request",
    "requeue",
    "resume",
    "rollback",
    "silent",
    "standing",
    "submit",
    "suspend",
    "thaw",
    "tune",
    "unfreed",
    "verdicts",
    "waits_for_approval",
    "wish",
    "wish_versions",
    "wished",
    "withdraw",
    "world_reported",
    "worths",
]
