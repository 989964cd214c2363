"""The operations on plans and pools."""

from collections.abc import Mapping
from typing import Any

from brain.calls.making import V1, encoded, get, part, post
from brain.client import Call
from brain.types.recommendation import Recommendation
from brain.types.sharing import StoredPolicy
from brain.views import JobEdit, Page, PlanDecision, PlanView, PoolView, ResizeRequest, Scaling


def plans_of(
    job: str, *, page_token: str = "", page_size: int | None = None
) -> Call[Page[PlanView]]:
    """Read one page of the plans of a job, newest (highest generation) first."""
    query = {"page_size": str(page_size or ""), "page_token": page_token}
    return get(f"/jobs/{part(job)}/plans", Page[PlanView], **query)


def plan(job: str, generation: int) -> Call[PlanView]:
    """Read one plan of a job."""
    return get(f"/jobs/{part(job)}/plans/{generation}", PlanView)


def resize(job: str, request: ResizeRequest, *, dry_run: bool = False) -> Call[PlanView]:
    """Request a number of replicas. Brain accepts the number, reduces it to a number that fits, or
    refuses the request.
    """
    return post(f"/jobs/{part(job)}/plans", request, PlanView, dry_run=dry_run)


def edit(job: str, wanted: JobEdit, *, dry_run: bool = False) -> Call[PlanView]:
    """Change the amounts that each replica of a job reserves, its size, or its batch."""
    return post(f"/jobs/{part(job)}", wanted, PlanView, dry_run=dry_run, method="PATCH")


def plans(
    *, page_token: str = "", filter: str = "", page_size: int = 100, sort: str = ""
) -> Call[Page[PlanView]]:
    """Read one page of the plans of all jobs, newest first; ``filter`` selects plans, for example
    ``state:Proposed``.
    """
    query = {"page_size": str(page_size), "page_token": page_token, "filter": filter, "sort": sort}
    return get("/plans", Page[PlanView], **query)


def approve(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Approve a proposed plan. If the plan is no longer at ``version``, the service refuses with
    ``VersionMismatch``, so nobody approves a plan that has changed since they saw it.
    """
    return post(f"/plans/{part(job)}/{generation}:approve", decision, PlanView, dry_run=dry_run)


def reject(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Reject a proposed or approved plan."""
    return post(f"/plans/{part(job)}/{generation}:reject", decision, PlanView, dry_run=dry_run)


def rollback(
    job: str, generation: int, decision: PlanDecision, *, dry_run: bool = False
) -> Call[PlanView]:
    """Create a plan that undoes an applied plan: the job returns to the size that it had before."""
    return post(f"/plans/{part(job)}/{generation}:rollback", decision, PlanView, dry_run=dry_run)


def pool(name: str) -> Call[PoolView]:
    """Read a pool: its nodes, the policy that divides it, and the result of its latest division."""
    return get(f"/pools/{part(name)}", PoolView)


def policies() -> Call[Page[StoredPolicy]]:
    """Read the policies of all pools; pools without a policy are left out."""
    return get("/policies", Page[StoredPolicy])


def put_policy(
    pool: str, document: Mapping[str, Any], *, dry_run: bool = False
) -> Call[StoredPolicy]:
    """Store the policy that divides a pool among projects; it replaces the earlier policy."""
    return Call(
        method="PUT",
        path=f"{V1}/policies/{part(pool)}",
        reads=StoredPolicy,
        query={"dry_run": "true"} if dry_run else {},
        body=encoded(document),
    )


def recommendation(job: str) -> Call[Recommendation | None]:
    """Read Brain's latest decision about a job (a change or a hold); None if there is none yet."""
    return get(f"/jobs/{part(job)}/recommendation", Recommendation | None)


def what_if(job: str) -> Call[Scaling]:
    """Read the predicted throughput of a job, with its interval, at each size within its bounds."""
    return get(f"/jobs/{part(job)}/what-if", Scaling)
