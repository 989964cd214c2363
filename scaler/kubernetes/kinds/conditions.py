"""The words of conditions: types, their reasons and the phases that columns show."""

from enum import StrEnum


class JobCondition(StrEnum):
    """Conditions of an ElasticJob; each carries ``observedGeneration``."""

    #: The spec can be used, and Brain knows the job. False: the message says what to change.
    ACCEPTED = "Accepted"
    #: Every field does what it says. False: the message lists those that do not, and why.
    HONOURED = "Honoured"
    #: The nodes that exist, empty, could hold the job. Unknown: pods ask for nodes that may come.
    #: False: none came, and it can never run as it is.
    FEASIBLE = "Feasible"
    #: The gang holds its resources.
    SCHEDULED = "Scheduled"
    #: A world trains.
    RUNNING = "Running"
    #: A plan changes the size.
    SCALING = "Scaling"
    #: The size is not the one that `replicas` says. The message names the plan that made it so, and
    #: the command by which a person has that size back: an edit to the same number is none.
    SIZE_DIFFERS = "SizeDiffers"
    #: A size was asked for, and no Brain answers: it is asked again.
    RESIZE_WAITING = "ResizeWaiting"
    #: Fewer of its pods are ready than are wished, or fewer train.
    DEGRADED = "Degraded"
    #: Each replica reserves what the plan that is applied says. False: the message says which do
    #: not, and why.
    RESERVED = "Reserved"
    #: It was stopped until somebody lets it go on.
    SUSPENDED = "Suspended"
    #: What is measured: inside the workers, or on their nodes only.
    TELEMETRY = "Telemetry"
    #: Another controller acts on the same replicas. Brain does not: it does nothing where that
    #: makes pods, and only advises where that is an autoscaler.
    CONFLICT = "Conflict"
    #: Set once, at the end.
    COMPLETE = "Complete"
    #: Set once, at the end.
    FAILED = "Failed"
    #: It is on its way to what is wished: tools that follow kstatus wait.
    RECONCILING = "Reconciling"
    #: It gets no further by itself: tools that follow kstatus give up.
    STALLED = "Stalled"


class PlanCondition(StrEnum):
    """Conditions of a ScalePlan."""

    #: It was turned into a target. False: it never will be, and the message says why.
    ACCEPTED = "Accepted"
    #: The target is not what was asked for: the message says what was changed, and why.
    CLAMPED = "Clamped"
    #: All that it asks for beside its size is done, too. False: the message lists what is not.
    HONOURED = "Honoured"
    APPROVED = "Approved"
    EXECUTING = "Executing"
    #: The world met the target.
    COMPLETE = "Complete"
    #: What was measured kept the promise.
    VERIFIED = "Verified"
    FAILED = "Failed"


class Reason(StrEnum):
    """Why a condition is as it is."""

    VALID = "Valid"
    INVALID = "Invalid"
    SERVED = "AllFieldsServed"
    IGNORED = "FieldsNotServed"
    UNKNOWN_FIELDS = "FieldsUnknown"
    FITS = "Fits"
    NEVER_FITS = "NeverFits"
    NOT_YET = "WaitingForNodes"
    NO_QUOTA = "QuotaExceeded"
    WAITING = "WaitingForCapacity"
    ADMITTED = "GangAdmitted"
    LET_GO = "GangLetGo"
    PODS_READY = "PodsReady"
    PODS_MISSING = "PodsMissing"
    STARTING = "Starting"
    ENDED = "Ended"
    WORLD_FORMED = "WorldFormed"
    HEALING = "Healing"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    NOT_SUSPENDED = "NotSuspended"
    ALONE = "NoOtherController"
    FULL = "Full"
    NODE_ONLY = "NodeOnly"
    UNMEASURED = "NotMeasured"
    NOT_OURS = "ManagedElsewhere"
    AUTOSCALER = "HorizontalPodAutoscaler"
    VERTICAL = "VerticalPodAutoscaler"
    AS_PLANNED = "AsPlanned"
    RESIZING = "Resizing"
    WAITS_FOR_RESTART = "WaitsForRestart"
    RESTARTS = "Restarts"
    ANOTHER_PLAN = "AnotherPlan"
    AS_ASKED = "AsAsked"
    SUCCEEDED = "Succeeded"
    CANCELLED = "Cancelled"
    DEADLINE = "DeadlineExceeded"
    EXIT_CODE = "ExitCode"
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    IMAGE = "ImageCannotBePulled"
    NO_BRAIN = "BrainUnreachable"
    REFUSED = "RefusedByBrain"
    NOT_ALLOWED = "NotAllowed"
    FORBIDDEN = "ForbiddenByCluster"
    DENIED = "DeniedByPolicy"
    PROPOSED = "Proposed"
    POLICY = "ApprovedByPolicy"
    PERSON = "ApprovedByPerson"
    REJECTED = "Rejected"
    NO_JOB = "JobNotFound"
    JOB_ENDED = "JobEnded"
    OUT_OF_BOUNDS = "OutOfBounds"
    NOT_A_MULTIPLE = "NotAMultipleOfUnit"
    STALE = "StaleGeneration"
    ANOTHER_ACTIVE = "AnotherPlanActive"
    SUPERSEDED = "Superseded"
    EXPIRED = "Expired"
    ADVISE_ONLY = "AdviseOnly"
    FROZEN = "Frozen"
    APPLYING = "Applying"
    APPLIED = "Applied"
    KEPT = "PromiseKept"
    FELL_SHORT = "FellShort"
    INCONCLUSIVE = "Inconclusive"
    ROLLED_BACK = "RolledBack"
