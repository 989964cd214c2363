"""Nodes, pools and freezes."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated

from fastapi import Path, Query, Response

from brain import digest, errors, lifecycle, savings, wire
from brain.api import orders, routers, views
from brain.api.acting import Act, Acting
from brain.api.deps import Here, JobRequest, PageSize, Project, Who, answer, asked
from brain.api.pages import LARGEST, named_page
from brain.api.problems import problems
from brain.api.queries import Fields, picked
from brain.api.spans import Instant, span_of
from brain.errors import BadInput
from brain.ports import Transaction
from brain.types.digest import Digest
from brain.types.job import check_name
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import Event
from brain.types.resources import Node, NodeName
from brain.types.savings import Savings
from brain.views import NodeView, Page

router = routers.router("fleet")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRequest:
    """The target to freeze (a job by id or name, a project, or all jobs if none is named) and the
    reason.
    """

    scope: FreezeScope
    target: str = ""
    why: str = ""


@router.get("/nodes", response_model=Page[NodeView], responses=problems())
def nodes(
    here: Here,
    who: Who,
    page_size: PageSize = LARGEST,
    page_token: str = "",
    fields: Fields = "",
    sort: str = orders.NODES.parameter,
) -> Response:
    """Return the nodes by name, with the resources reserved on them."""
    pick = picked(NodeView, fields)
    with here.stores.transaction(read_only=True) as tx:
        page = orders.NODES.page(tx.nodes.page, sort=sort, page_token=page_token, size=page_size)
        items = views.nodes(tx, page.items, here.clock())
    return answer(pick(Page(items=items, next_page_token=page.next_page_token)))


@router.put("/nodes/{node}", status_code=204, responses=problems(errors.BadInput))
def put_node(node: str, here: Here, who: Who, act: Act) -> Response:
    """Register a node or renew its registration. The service sets the time of the registration by
    its own clock.
    """
    said = wire.decode(act.body, Node)
    if said.name != node:
        raise BadInput(
            f"name {said.name!r} differs from {node!r} in the path; give the same name in both",
            field="name",
        )

    def stored(tx: Transaction) -> bool:
        known, now = _known(tx, said.name), here.clock()
        tx.nodes.put(replace(said, seen_at=now))
        changed = known is None or replace(known, seen_at=said.seen_at) != said
        if changed:
            kind = "node.registered" if known is None else "node.changed"
            tx.events.add(Event(at=now, kind=kind, message=f"node {node} in pool {said.pool}"))
        # A node that is back counts again at once.
        return changed or (known is not None and lifecycle.silent(known, now))

    return act(stored, status=204, news=bool)


@router.get("/savings", response_model=Savings, responses=problems(BadInput))
def saved(
    here: Here, who: Who, since: Instant | None = None, until: Instant | None = None
) -> Response:
    """Return the savings of measured plans; by default those of the last 24 hours."""
    begin, end = span_of(since, until, here.clock(), default=timedelta(days=1))
    with here.stores.transaction(read_only=True) as tx:
        return answer(savings.savings(tx, begin, end, here.settings, here.clock()))


@router.get("/digest", response_model=Digest, responses=problems(BadInput))
def weekly(
    here: Here,
    who: Who,
    owner: Annotated[str, Query(description="default: the caller")] = "",
    week: Annotated[
        str, Query(description=("ISO week, for example 2026-W48; default: the present week"))
    ] = "",
) -> Response:
    """Return the amounts that an owner's jobs requested, used, needed and wasted in a week, with
    their cost.
    """
    with here.stores.transaction(read_only=True) as tx:
        return answer(digest.digest(tx, owner or who.name, week, here.settings, here.clock()))


@router.get("/pools", response_model=Page[str], responses=problems())
def pools(here: Here, who: Who, page_size: PageSize = LARGEST, page_token: str = "") -> Response:
    """Return the names of the pools that have nodes or unfinished jobs."""
    with here.stores.transaction(read_only=True) as tx:
        names = {*tx.nodes.pools(), *tx.jobs.pools()}
    return answer(
        named_page(sorted(names), lambda name: name, page_token=page_token, size=page_size)
    )


@router.get("/freeze", response_model=Page[Freeze], responses=problems())
def freezes(here: Here, who: Who) -> Response:
    """Return the freezes in force, with author and reason."""
    with here.stores.transaction(read_only=True) as tx:
        return answer(Page(items=tuple(tx.freezes.all())))


@router.post(
    "/freeze", response_model=Page[Freeze], responses=problems(errors.BadInput, errors.UnknownJob)
)
def freeze(here: Here, who: Who, act: Act, project: Project = "default") -> Response:
    """Stop applying plans of a job, a project or all jobs; failed replicas are still replaced."""
    wanted = asked(act.body, FreezeRequest)
    if wanted.scope is FreezeScope.PROJECT and wanted.target:
        check_name("target", wanted.target)

    def frozen(tx: Transaction) -> Page[Freeze]:
        target = _target(tx, act, wanted.scope, wanted.target, project)
        made = Freeze(
            scope=wanted.scope, target=target, by=who.name, why=wanted.why, at=here.clock()
        )
        lifecycle.freeze(tx, made)
        return Page(items=tuple(tx.freezes.all()))

    return act(frozen)


@router.delete("/freeze/{scope}", response_model=Page[Freeze], responses=problems(errors.BadInput))
def thaw_all(
    scope: Annotated[FreezeScope, Path(json_schema_extra={"enum": [FreezeScope.ALL.value]})],
    here: Here,
    who: Who,
    act: Act,
) -> Response:
    """Lift the freeze of all jobs."""
    return act(lambda tx: _thawed(tx, act, scope, ""))


@router.delete(
    "/freeze/{scope}/{target}",
    response_model=Page[Freeze],
    responses=problems(errors.BadInput, errors.UnknownJob),
)
def thaw(
    scope: FreezeScope,
    target: str,
    here: Here,
    who: Who,
    act: Act,
    project: Project = "default",
) -> Response:
    """Lift the freeze of a job or project; without a freeze the request changes nothing."""
    return act(lambda tx: _thawed(tx, act, scope, target, project))


def _known(tx: Transaction, name: NodeName) -> Node | None:
    try:
        return tx.nodes.get(name)
    except errors.UnknownNode:
        return None


def _thawed(
    tx: Transaction, act: Acting, scope: FreezeScope, named: str, project: str = "default"
) -> Page[Freeze]:
    target = _target(tx, act, scope, named, project)
    lifecycle.thaw(tx, scope, target, by=act.who.name, now=act.here.clock())
    return Page(items=tuple(tx.freezes.all()))


def _target(tx: Transaction, act: Acting, scope: FreezeScope, target: str, project: str) -> str:
    """Return the key of a freeze: a job's id, a project's name, or empty for everything."""
    if scope is FreezeScope.ALL:
        return ""
    if not target:
        raise BadInput(f"target is empty; name the {scope} to freeze", field="target")
    if scope is FreezeScope.PROJECT:
        return target
    return JobRequest(act.here, act.who, target, project).job(tx, acting=True).id
