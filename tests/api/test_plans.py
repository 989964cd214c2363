"""Plans over HTTP: asked for, approved, rejected, rolled back, explained."""

from dataclasses import replace

import pytest

from brain import calls
from brain.api.pages import token_of
from brain.errors import BadInput, Conflict, NotAllowed, UnknownPlan, VersionMismatch
from brain.settings import Settings
from brain.types.plan import Outcome, PlanKind, PlanState, Verdict
from brain.types.pool import FreezeScope
from brain.types.record import Role
from brain.types.resources import Resources
from brain.views import JobEdit, PlanDecision, ResizeRequest
from tests.api.app import Api, digits
from tests.builders import plan, recommendation


@pytest.fixture
def proposed(api: Api) -> str:
    """A job with a proposal of generation 1."""
    api.add_node()
    with api.client() as admin:
        job = str(admin.send(calls.submit(digits())).id)
    with api.stores.transaction() as tx:
        tx.plans.add(plan(1, job=job))
    return job


def test_every_plan_has_one_verdict_in_lists_and_beside_its_job(api: Api) -> None:
    missed = Outcome(epoch=2, verdict=Verdict.FELL_SHORT)
    kept = Outcome(epoch=3, verdict=Verdict.KEPT)
    api.add_node()
    with api.client() as admin:
        job = str(admin.send(calls.submit(digits())).id)
        with api.stores.transaction() as tx:
            tx.plans.add(plan(1, job=job, state=PlanState.ROLLED_BACK, outcome=missed))
            back = {"kind": PlanKind.ROLLBACK, "outcome": kept}
            tx.plans.add(plan(2, job=job, state=PlanState.VERIFIED, **back))
            tx.plans.add(plan(3, job=job, state=PlanState.EXPIRED))
            tx.plans.add(plan(4, job=job, state=PlanState.VERIFIED, outcome=missed))
            tx.plans.add(plan(5, job=job, state=PlanState.VERIFIED))
        everywhere = [view.verdict for view in admin.send(calls.plans()).items]
        of_job = [view.verdict for view in admin.send(calls.plans_of(job)).items]
        beside = admin.send(calls.job(job)).job.verdict

    assert of_job == ["inconclusive", "fell short", "not applied", "restored", "rolled back"]
    assert sorted(everywhere) == sorted(of_job)
    assert beside == "inconclusive"


@pytest.mark.parametrize("view", ["PlanView", "JobView", "PlanSaving"])
def test_a_verdict_is_always_told_and_is_one_of_seven_words(api: Api, view: str) -> None:
    document = api.http(api.token()).get("/api/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert "verdict" in schemas[view]["required"]
    assert schemas["PlanVerdict"]["enum"] == [
        "not yet", "kept", "fell short", "rolled back", "inconclusive", "restored", "not applied",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("undone", "told"), [(Verdict.FELL_SHORT, "rolled back"), (Verdict.KEPT, "restored")]
)
def test_the_way_back_from_a_missed_promise_is_told_as_rolled_back(
    api: Api, undone: Verdict, told: str
) -> None:
    api.add_node()
    with api.client() as admin:
        job = str(admin.send(calls.submit(digits())).id)
        with api.stores.transaction() as tx:
            first = Outcome(epoch=2, verdict=undone)
            tx.plans.add(plan(1, job=job, state=PlanState.ROLLED_BACK, outcome=first))
            back = {"kind": PlanKind.ROLLBACK, "outcome": Outcome(epoch=3, verdict=Verdict.KEPT)}
            tx.plans.add(plan(2, job=job, state=PlanState.VERIFIED, **back))
        assert admin.send(calls.job(job)).job.verdict == told


def test_only_a_scaler_names_who_asked(api: Api) -> None:
    api.add_node()
    request = ResizeRequest(replicas=3, by="kubectl (ElasticJob team/digits)")
    with api.client(Role.ADMIN) as admin, api.client(Role.SCALER) as scaler:
        job = str(admin.send(calls.submit(digits())).id)
        with pytest.raises(BadInput, match="only a scaler may name another person"):
            admin.send(calls.resize(job, request))
        made = scaler.send(calls.resize(job, request)).plan
    assert made.approval is not None
    assert (made.proposed_by, made.approval.by) == (request.by, request.by)


def test_a_request_is_approved_by_who_asked(api: Api) -> None:
    api.add_node()
    with api.client(Role.SUBMITTER, name="ada") as ada:
        ada.send(calls.submit(digits()))
        made = ada.send(calls.resize("digits", ResizeRequest(replicas=3, why="deadline"))).plan
    assert (made.kind, made.state, made.target.replicas) == (
        PlanKind.REQUEST,
        PlanState.APPROVED,
        3,
    )
    assert made.approval is not None
    assert made.approval.by == "ada"


@pytest.mark.parametrize(
    ("asked", "replicas", "sizes"),
    [
        (9, {"min": 1, "max": 2}, "1 to 2"),
        (1, {"min": 2, "max": 4}, "2 to 4"),
        (3, {"min": 2, "max": 6, "unit": 2}, "2 to 6 in steps of 2"),
    ],
)
def test_a_size_beyond_the_bounds_is_refused_and_changes_nothing(
    api: Api, asked: int, replicas: dict[str, int], sizes: str
) -> None:
    api.add_node(cpus=16)
    bounds = f"{replicas['min']}:{replicas['max']}"
    says = rf"replicas {asked} is not within the bounds {bounds} of job digits; ask for {sizes}, or"
    with api.client() as admin:
        admin.send(calls.submit(digits(replicas=replicas)))
        with pytest.raises(BadInput, match=says) as refused:
            admin.send(calls.resize("digits", ResizeRequest(replicas=asked)))
        assert admin.send(calls.plans_of("digits")).items == ()
    assert refused.value.field == "replicas"


def test_a_size_that_an_object_declares_is_clamped_to_the_bounds(api: Api) -> None:
    api.add_node(cpus=16)
    with api.client(Role.SCALER) as scaler, api.client() as admin:
        admin.send(calls.submit(digits()))
        made = scaler.send(calls.resize("digits", ResizeRequest(replicas=9, clamp=True))).plan
    assert made.target.replicas == 4
    assert "bounds" in made.explanation.reason


def test_no_replicas_at_all_are_refused(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
        with pytest.raises(BadInput, match="suspend or cancel"):
            admin.send(calls.resize("digits", ResizeRequest(replicas=0)))


def test_an_approval_carries_the_version_that_was_seen(api: Api, proposed: str) -> None:
    with api.client(Role.OPERATOR, name="olga") as olga:
        with pytest.raises(VersionMismatch):
            olga.send(calls.approve(proposed, 1, PlanDecision(version=99)))
        view = olga.send(calls.approve(proposed, 1, PlanDecision(version=1)))
    assert view.plan.state is PlanState.APPROVED
    assert view.plan.approval is not None
    assert view.plan.approval.by == "olga"


def test_a_dry_run_of_an_approval_leaves_the_proposal(api: Api, proposed: str) -> None:
    with api.client() as admin:
        would = admin.send(calls.approve("digits", 1, PlanDecision(), dry_run=True))
        now = admin.send(calls.plans_of(proposed)).items[0]
    assert (would.plan.state, now.plan.state) == (PlanState.APPROVED, PlanState.PROPOSED)


def test_a_rejected_plan_cannot_be_approved(api: Api, proposed: str) -> None:
    with api.client() as admin:
        rejected = admin.send(calls.reject(proposed, 1, PlanDecision(why="not before Monday")))
        with pytest.raises(Conflict, match="Rejected"):
            admin.send(calls.approve(proposed, 1, PlanDecision()))
    assert "not before Monday" in rejected.plan.outcome.detail
    assert rejected.blocked is not None


def test_a_plan_that_does_not_stand_cannot_be_rolled_back(api: Api, proposed: str) -> None:
    with api.client() as admin, pytest.raises(Conflict, match="not in force"):
        admin.send(calls.rollback(proposed, 1, PlanDecision()))


def test_a_submitter_does_not_approve(api: Api, proposed: str) -> None:
    with api.client(Role.SUBMITTER) as client, pytest.raises(NotAllowed, match="operator"):
        client.send(calls.approve(proposed, 1, PlanDecision()))


def test_an_unknown_generation_is_told(api: Api, proposed: str) -> None:
    with api.client() as admin, pytest.raises(UnknownPlan):
        admin.send(calls.approve(proposed, 7, PlanDecision()))


def test_the_inbox_lists_proposals_with_the_names_of_their_jobs(api: Api, proposed: str) -> None:
    with api.client() as admin:
        inbox = admin.send(calls.plans(filter="state:Proposed job:digits"))
        none = admin.send(calls.plans(filter="state:Verified"))
    assert [(one.job_name, one.plan.generation) for one in inbox.items] == [("digits", 1)]
    assert inbox.items[0].blocked is None
    assert none.items == ()


def test_the_list_goes_on_from_its_token(api: Api, proposed: str) -> None:
    with api.client() as admin:
        admin.send(calls.reject(proposed, 1, PlanDecision()))
        with api.stores.transaction() as tx:
            tx.plans.add(plan(2, job=proposed))
        first = admin.send(calls.plans(page_size=1))
        second = admin.send(calls.plans(page_size=1, page_token=first.next_page_token or ""))
    assert [page.items[0].plan.generation for page in (first, second)] == [2, 1]
    assert second.next_page_token is None


def test_the_plans_of_a_job_go_on_from_their_token(api: Api, proposed: str) -> None:
    with api.client() as admin:
        admin.send(calls.reject(proposed, 1, PlanDecision()))
        with api.stores.transaction() as tx:
            tx.plans.add(plan(2, job=proposed))
        first = admin.send(calls.plans_of("digits", page_size=1))
        second = admin.send(
            calls.plans_of("digits", page_size=1, page_token=first.next_page_token or "")
        )
        every = admin.send(calls.plans_of("digits"))
    assert [page.items[0].plan.generation for page in (first, second)] == [2, 1]
    assert second.next_page_token is None
    assert every.items == first.items + second.items


def test_a_client_that_knows_no_pages_gets_the_newest_plans_of_a_job(
    api: Api, proposed: str
) -> None:
    with api.client() as admin:
        admin.send(calls.reject(proposed, 1, PlanDecision()))
    with api.stores.transaction() as tx:
        for generation in range(2, 503):
            tx.plans.add(plan(generation, job=proposed, state=PlanState.EXPIRED))
    with api.http(api.token()) as http:
        found = http.get("/api/v1/jobs/digits/plans").json()
    generations = [view["plan"]["generation"] for view in found["items"]]
    assert generations == list(range(502, 2, -1))
    assert found["next_page_token"]


def test_a_token_of_another_list_is_refused_for_the_plans_of_a_job(api: Api, proposed: str) -> None:
    refused = pytest.raises(BadInput, match="leave it out to start at the first page")
    with api.client() as admin, refused:
        admin.send(calls.plans_of("digits", page_token=token_of("a name")))


def test_one_plan_of_a_job_is_read_by_its_generation(api: Api, proposed: str) -> None:
    with api.client() as admin:
        view = admin.send(calls.plan("digits", 1))
        with pytest.raises(UnknownPlan, match="no plan of generation 7"):
            admin.send(calls.plan("digits", 7))
        assert admin.send(calls.plans_of("digits")).items == (view,)


def test_shadow_plans_say_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    api = Api(tmp_path_factory.mktemp("home"), settings=Settings(policy_mode="shadow"))
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
        with api.stores.transaction() as tx:
            tx.plans.add(plan(1, job=job))
        view = admin.send(calls.plans_of(job)).items[0]
    assert view.shadow
    assert view.blocked is not None
    assert "shadow" in view.blocked


def test_the_decision_is_the_recommendation(api: Api, proposed: str) -> None:
    with api.client() as admin:
        assert admin.send(calls.recommendation(proposed)) is None
        with api.stores.transaction() as tx:
            tx.plans.decide(tx.jobs.get(proposed).id, recommendation())
        assert admin.send(calls.recommendation(proposed)) == recommendation()


def test_what_if_says_what_the_model_cannot_know(api: Api, proposed: str) -> None:
    with api.client() as admin:
        scaling = admin.send(calls.what_if(proposed))
    assert [size.replicas for size in scaling.sizes] == [1, 2, 3, 4]
    assert all(size.undetermined for size in scaling.sizes)


def test_freezing_and_thawing_are_listed_and_audited(api: Api, proposed: str) -> None:
    with api.client(name="olga") as olga:
        frozen = olga.send(calls.freeze(FreezeScope.JOB, "digits", why="demo"))
        shown = olga.send(calls.job("digits")).job.conditions
        thawed = olga.send(calls.thaw(FreezeScope.JOB, "digits"))
        actions = [entry.action for entry in olga.send(calls.audit()).items[:2]]
    assert [freeze.target for freeze in frozen.items] == [proposed]
    says = "frozen by olga: demo (`brain freeze --off digits` lifts it)"
    assert ("Frozen", says) in [(one.kind, one.reason) for one in shown]
    assert thawed.items == ()
    assert actions == ["thaw", "freeze"]


def test_freezing_by_name_reaches_the_jobs_of_other_projects(api: Api) -> None:
    with api.client() as admin:
        id = admin.send(calls.submit(digits(project="vision"))).id
    wanted = {"scope": "job", "target": "digits", "why": "demo"}
    with api.http(api.token(Role.OPERATOR)) as http:
        missed = http.post("/api/v1/freeze", json=wanted)
        frozen = http.post("/api/v1/freeze?project=vision", json=wanted)
        thawed = http.delete("/api/v1/freeze/job/digits?project=vision")
    assert missed.status_code == 404
    assert "add ?project=vision" in missed.json()["detail"]
    assert [each["target"] for each in frozen.json()["items"]] == [id]
    assert thawed.json()["items"] == []


def test_an_edit_is_a_plan_of_its_own_and_says_what_applies(api: Api) -> None:
    api.add_node()
    with api.client(Role.SUBMITTER, name="ada") as ada:
        ada.send(calls.submit(digits()))
        wanted = JobEdit(cpu_millis=500, memory_bytes=2**31, why="it waits for data")
        tried = ada.send(calls.edit("digits", wanted, dry_run=True)).plan
        assert ada.send(calls.plans_of("digits")).items == ()
        made = ada.send(calls.edit("digits", wanted)).plan
    assert tried.target == made.target
    assert (made.kind, made.state) == (PlanKind.REQUEST, PlanState.VERIFIED)
    assert made.target.resources == Resources(cpu_millis=500, memory_bytes=2**31)
    assert made.explanation.reason == (
        "ada asked for CPU 1 → 0.5, memory none → 2 GiB each: it waits for data"
    )
    assert made.explanation.next_step == (
        "The edit applies now: the job has no running replicas; its next start uses the new values."
    )
    assert made.approval is not None


def test_an_edit_answers_with_the_version_that_the_next_edit_is_about(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    with api.http(api.token()) as http:
        seen = http.get("/api/v1/jobs/digits").headers["etag"]
        for millis in (500, 600):
            body = {"cpu_millis": millis}
            answer = http.patch("/api/v1/jobs/digits", json=body, headers={"If-Match": seen})
            assert answer.status_code == 200, answer.text
            seen = answer.headers["etag"]
        assert seen == http.get("/api/v1/jobs/digits").headers["etag"]


def test_an_edit_with_a_misspelt_field_changes_nothing(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    with api.http(api.token()) as http:
        answer = http.patch("/api/v1/jobs/digits", json={"roel": "ps", "replicas": 3})
        assert (answer.status_code, answer.json()["field"]) == (422, "roel"), answer.text
        assert "did you mean role" in answer.text
        assert http.get("/api/v1/jobs/digits/plans").json()["items"] == []


def test_an_edit_of_a_job_that_changed_meanwhile_or_by_a_viewer_is_refused(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        job = admin.send(calls.submit(digits()))
        old = {"If-Match": str(job.version + 1)}
        with pytest.raises(VersionMismatch):
            admin.send(replace(calls.edit("digits", JobEdit(cpu_millis=500)), headers=old))
        with pytest.raises(BadInput, match="cpu_millis 0 is not a possible amount") as refused:
            admin.send(calls.edit("digits", JobEdit(cpu_millis=0)))
    assert refused.value.field == "cpu_millis"
    with api.client(Role.VIEWER) as viewer, pytest.raises(NotAllowed):
        viewer.send(calls.edit("digits", JobEdit(cpu_millis=500)))


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"batch": 512}, "batch", "declare batch.tune, and submit the job again"),
        ({"gpus": 2}, "gpus", "gpus 2 fits no node of pool local, even an empty one"),
        ({"gpus": -1}, "gpus", "gpus -1 is negative; give 0 or more"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_field_value_and_remedy(
    api: Api, body: dict[str, int], field: str, says: str
) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    with api.http(api.token()) as http:
        answer = http.patch("/api/v1/jobs/digits", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert says in answer.json()["detail"]
