"""The tree of domain errors. Each docstring says what to do about the error.

    BrainError
    ├── BadInput                the input of a person or program cannot be used
    │   ├── UnknownField        a document names a field that does not exist
    │   ├── ImpossibleBounds    no size satisfies the bounds
    │   ├── TooLarge            a body or batch beyond the limit
    │   └── UnknownVersion      a message of an unsupported version
    ├── NotFound                the named object does not exist
    │   ├── UnknownJob
    │   ├── UnknownPlan
    │   ├── UnknownReplica
    │   ├── UnknownNode
    │   └── UnknownPool
    ├── Conflict                the state has changed, or forbids it
    │   ├── IllegalTransition   a job or plan cannot move to the requested state
    │   ├── StalePlan           a later generation is already stored
    │   ├── NameTaken           the name belongs to an unfinished job of the project
    │   ├── VersionMismatch     the edited version is no longer current
    │   └── KeyReused           an idempotency key was sent with another body or query
    ├── NotAllowed              the caller is signed in, but lacks the required role
    ├── NotSignedIn             no valid token
    ├── Overloaded              try again after a while
    │   └── TooSlow             a request that did not arrive in time
    ├── Unavailable             a store or the service cannot be reached
    │   └── SchemaTooNew        the database was written by a newer Brain
    └── Undetermined            the model cannot know the answer

The core raises these errors and does not depend on HTTP; ``brain.api.problems`` assigns a status to
each.
"""


class BrainError(Exception):
    """Base of all errors that a caller can act on."""

    #: The setting whose limit was reached; empty if there is none.
    limit: str = ""


class BadInput(BrainError):
    """The input cannot be used; the message names field, value and remedy."""

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        #: Path of the field at fault, ``replicas.min`` for example.
        self.field = field


class UnknownField(BadInput):
    """A document names a field that does not exist; the message names the most
    similar known field.
    """


class ImpossibleBounds(BadInput):
    """No replica count satisfies the bounds; widen them as the message says."""


class TooLarge(BadInput):
    """The body or batch is larger than is accepted; split it as the message says."""

    def __init__(self, detail: str, *, field: str | None = None, limit: str = "") -> None:
        super().__init__(detail, field=field)
        self.limit = limit


class UnknownVersion(BadInput):
    """The version is not supported; upgrade the side that the error names."""


class NotFound(BrainError):
    """The named object does not exist; list the objects of its kind to see their names."""


class UnknownJob(NotFound):
    """No job has this id, and no job of the project has this name."""


class UnknownPlan(NotFound):
    """The job has no plan of this generation."""


class UnknownReplica(NotFound):
    """The job never had a replica with this id; the message names the replicas that it had."""


class UnknownNode(NotFound):
    """No node of this name has registered."""


class UnknownPool(NotFound):
    """No pool of this name has nodes or jobs, or the pool has no policy."""


class Conflict(BrainError):
    """The request does not fit the present state; read the state again and decide again."""


class IllegalTransition(Conflict):
    """A job or plan cannot move from its state to the requested state."""


class StalePlan(Conflict):
    """A plan of this generation or a later one is already stored; propose a plan of the next
    generation.
    """


class NameTaken(Conflict):
    """Another unfinished job of the project has this name; rename this job or cancel
    the other job.
    """


class VersionMismatch(Conflict):
    """The object changed since you read it; read it again before you edit or approve it."""


class KeyReused(BrainError):
    """The idempotency key was used for another body or query; send a new key."""


class NotSignedIn(BrainError):
    """The request has no token, or its token is unknown, expired or revoked; sign in, or create
    another token.
    """


class NotAllowed(BrainError):
    """The token's role does not allow this request; the message names a role that allows it."""


class Overloaded(BrainError):
    """The service is over a limit now; retry after the stated seconds."""

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0, limit: str = "") -> None:
        super().__init__(detail)
        self.retry_after_seconds, self.limit = retry_after_seconds, limit


class TooSlow(Overloaded):
    """The request did not arrive completely in time; send it again, or over a faster connection."""


class Unavailable(BrainError):
    """A store or service cannot be reached; nothing was lost, so retry with back-off."""

    def __init__(self, detail: str, *, cause: str = "") -> None:
        super().__init__(detail)
        #: Address and the driver's own message, for the operator of the service; no answer has
        #: them.
        self.cause = cause

    @property
    def in_full(self) -> str:
        """The message and its cause, for logs and for the terminal of the service."""
        return f"{self} ({self.cause})" if self.cause else str(self)


class SchemaTooNew(Unavailable):
    """The database was written by a newer Brain; run the newer version, or restore the copy that it
    made before it migrated the database.
    """


class Undetermined(BrainError):
    """The model lacks measurements that an answer needs; make the measurements that the message
    names.
    """

    def __init__(self, detail: str, *, code: str = "undetermined") -> None:
        super().__init__(detail)
        #: Code of the missing measurement, as in explanations: ``no-steps``, ``scattered`` …
        self.code = code
