"""The owner's terms for hanging worlds and slow nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.values.config import LaunchConfig
from launcher.values.hang.rules import Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class HangTerms:
    """The limits for a hang, and the action after it."""

    patience: Patience = field(default_factory=Patience)
    #: True to restart a world that stands still; False only to report it.
    restart: bool = False
    #: Leave nodes that hold the others up (``--exclude-straggler``); the ratio that is slow.
    leave_slow: bool = False
    ratio: float = 1.15
    #: Says something that a person shall see.
    tell: Callable[[str], None] = field(default=lambda text: None)


def hang_terms(config: LaunchConfig, tell: Callable[[str], None]) -> HangTerms | None:
    """Return the terms from a job's command line; None if the workers' steps cannot be observed."""
    if not (config.probe and config.entrypoint.python):
        return None
    by_hand = config.replica_directory is None
    return HangTerms(
        patience=Patience(seconds=config.hang_seconds),
        restart=(config.on_hang or ("report" if by_hand else "restart")) == "restart",
        leave_slow=config.exclude_straggler,
        ratio=config.straggler_ratio,
        tell=tell,
    )
