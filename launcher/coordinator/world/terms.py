"""The terms set by a job's owner, in the form that its coordinator needs."""

from dataclasses import dataclass, field

from brain.types.grace import GRACE_SECONDS
from launcher.values.hang.terms import HangTerms
from launcher.values.network_check.terms import CheckTerms
from launcher.values.observation import WorldRules


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorTerms:
    """The terms of a coordinator's job."""

    job: str
    run_id: str
    token_sha256: str
    #: host:port where agents reach it, and the node it runs on.
    address: str
    node: str
    master_addr: str | None = None
    master_port: int | None = None
    #: Seconds that an agent may be silent.
    lease_seconds: float = 3.0
    #: Another agent, or a scaler, could go on without these workers, which live by leases then.
    replaceable: bool = True
    #: Neither a scaler nor a manager of jobs starts its agents elsewhere.
    by_hand: bool = False
    #: After a pause the cluster is asked if others were started in these agents' places.
    asks: bool = False
    grace_seconds: float = GRACE_SECONDS
    #: Name of the program that the job runs.
    program: str = ""
    #: A checkpoint was declared, and where it is, absolute; None: that was not said.
    declared: bool = False
    checkpoint: str | None = None
    #: Workers cannot be seen stepping.
    blind: bool = False
    rules: WorldRules = field(default_factory=WorldRules)
    #: Seconds to go on telling Brain of the end while it is away.
    linger_seconds: float = 10.0
    #: The check of nodes before the first world; None if there is none.
    check: CheckTerms | None = None
    #: Signs of a hang to look for while worlds run; None to look for none.
    hang: HangTerms | None = None
