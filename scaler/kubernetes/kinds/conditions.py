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
    #: Kueue admits the job at its size; only jobs in a queue have it. False: the message has
    #: Kueue's words, and how many replicas it admits.
    ADMITTED = "Admitted"
    #: The gang holds its resources.
    SCHEDULED = "Scheduled"
    #: A world trains.
    RUNNING = "Running"
    #: A plan changes the size.
    SCALING = "Scaling"
    #: The size differs from `replicas`. The message names the plan that set the size, and the
    #: command that restores the size in `replicas`: an edit to the same number changes nothing.
    SIZE_DIFFERS = "SizeDiffers"
    #: Somebody asked for a size, and no Brain answers: the operator asks again.
    RESIZE_WAITING = "ResizeWaiting"
    #: Fewer of its pods are ready, or train, than are desired.
    DEGRADED = "Degraded"
    #: Each replica reserves the amounts of the applied plan. False: the message names the replicas
    #: that do not, and why.
    RESERVED = "Reserved"
    #: The job was stopped, until somebody resumes it.
    SUSPENDED = "Suspended"
    #: The place of measurement: inside the workers, or on their nodes only.
    TELEMETRY = "Telemetry"
    #: Another controller acts on the same replicas. Brain does not: it does nothing where that
    #: makes pods, and only advises where that is an autoscaler.
    CONFLICT = "Conflict"
    #: The job succeeded; set once, at the end.
    COMPLETE = "Complete"
    #: The job failed; set once, at the end.
    FAILED = "Failed"
    #: The job is on its way to the desired state: tools that follow kstatus wait.
    RECONCILING = "Reconciling"
    #: The job cannot get further by itself: tools that follow kstatus give up.
    STALLED = "Stalled"


class PlanCondition(StrEnum):
    #: Brain turned the plan into a target. False: that can never happen, and the message says why.
    ACCEPTED = "Accepted"
    #: The target differs from the request: the message says how, and why.
    CLAMPED = "Clamped"
    #: Every request of the plan beside its size is carried out. False: the message lists the
    #: others.
    HONOURED = "Honoured"
    APPROVED = "Approved"
    EXECUTING = "Executing"
    #: The world met the target.
    COMPLETE = "Complete"
    #: The measurements kept the plan's promise.
    VERIFIED = "Verified"
    FAILED = "Failed"


class Reason(StrEnum):
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
    QUEUED = "WaitsInQueue"
    QUOTA = "QuotaReserved"
    NO_SHARE = "WaitsForQuota"
    NO_QUEUE = "InNoQueue"
    LET_GO = "GangLetGo"
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
    STALE = "StaleGeneration"
    ANOTHER_ACTIVE = "AnotherPlanActive"
    SUPERSEDED = "Superseded"
    EXPIRED = "Expired"
    ADVISE_ONLY = "AdviseOnly"
    APPLYING = "Applying"
    APPLIED = "Applied"
    KEPT = "PromiseKept"
    FELL_SHORT = "FellShort"
    RESTORED = "Restored"
    INCONCLUSIVE = "Inconclusive"
    ROLLED_BACK = "RolledBack"
