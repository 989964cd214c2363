"""The words of conditions (types and reasons), and the phases that ``kubectl get`` shows."""

from enum import StrEnum


class JobCondition(StrEnum):
    """Conditions of an ElasticJob; each has ``observedGeneration``."""

    #: True: the spec is valid, and Brain knows the job. False: the message says what to change.
    ACCEPTED = "Accepted"
    #: True: every field has its effect. False: the message lists the fields without effect, and
    #: why.
    HONOURED = "Honoured"
    #: True: the existing nodes could hold the job if they were empty. Unknown: pods request nodes
    #: that may be added. False: no nodes were added, so the job can never run in its present form.
    FEASIBLE = "Feasible"
    #: True: Kueue admits the job at its size. Only jobs in a queue have this condition. False: the
    #: message quotes Kueue, and says how many replicas it admits.
    ADMITTED = "Admitted"
    #: True: all pods of the gang have their resources.
    SCHEDULED = "Scheduled"
    #: True: a world trains.
    RUNNING = "Running"
    #: True: a plan is changing the size.
    SCALING = "Scaling"
    #: True: the size differs from `replicas`. The message names the plan that set the size, and the
    #: command that restores the size in `replicas`: an edit to the same number changes nothing.
    SIZE_DIFFERS = "SizeDiffers"
    #: True: somebody requested a size, and no Brain answers; the operator sends the request again.
    RESIZE_WAITING = "ResizeWaiting"
    #: True: fewer pods are ready, or train, than desired.
    DEGRADED = "Degraded"
    #: True: each replica reserves the amounts of the applied plan. False: the message names the
    #: replicas that do not, and says why.
    RESERVED = "Reserved"
    #: True: the job is stopped until somebody resumes it.
    SUSPENDED = "Suspended"
    #: True: the job is measured inside its workers. False: only its nodes are measured.
    TELEMETRY = "Telemetry"
    #: True: another controller acts on the same replicas. If that controller creates pods, Brain
    #: does nothing; if it is an autoscaler, Brain only advises.
    CONFLICT = "Conflict"
    #: True: the job succeeded. Set once, at the end.
    COMPLETE = "Complete"
    #: True: the job failed. Set once, at the end.
    FAILED = "Failed"
    #: True: the job is changing to its desired state, so tools that follow kstatus wait.
    RECONCILING = "Reconciling"
    #: True: the job cannot continue by itself, so tools that follow kstatus give up.
    STALLED = "Stalled"


class PlanCondition(StrEnum):
    #: True: Brain accepted the plan and set its target. False: Brain rejected the plan, and the
    #: message says why.
    ACCEPTED = "Accepted"
    #: True: the target differs from the request; the message says how, and why.
    CLAMPED = "Clamped"
    #: True: everything that the plan requests in addition to its size is carried out. False: the
    #: message lists the exceptions.
    HONOURED = "Honoured"
    #: True: a person or the policy approved the plan. False: the plan waits for approval.
    APPROVED = "Approved"
    #: True: the job is changing to the target now.
    EXECUTING = "Executing"
    #: True: the world reached the target.
    COMPLETE = "Complete"
    #: True: the measured throughput kept the plan's promise. False: the promise was missed.
    #: Unknown: there were too few measurements, or the plan undoes another plan and promised
    #: nothing.
    VERIFIED = "Verified"
    #: True: the plan ended without effect: it was rejected, superseded, expired or failed.
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
