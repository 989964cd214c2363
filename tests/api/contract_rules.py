"""Rules of the service that no schema tells, for schemathesis: ``SCHEMATHESIS_HOOKS`` names this.

A request that the schema allows is accepted, or refused by one of these rules; one that it
forbids is refused. No route is left out.
"""

import re
from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

#: Beginnings of refusals, under the reason why no schema can tell the rule.
RULES = (
    # The service made it, and a client returns it as it is.
    "page_token .* is not from this list",
    # A language with quotes, whose keys and values differ between lists.
    r"filter",
    # Instants have no order in a schema, nor years.
    "(since|until) .* must be (before|between the years)",
    "sent_at .* is more than 100 years off",
    # Values that no database stores.
    ".* (has a NUL character|does not fit into 64 bits); ",
    # Fields that depend on one another.
    r"replicas(: |\.(min|max|unit|start) )",
    r"roles(\.\w+(\.replicas|\.processesPerReplica|\.resources\.gpus))? ",
    r"groups(\.[a-z0-9-]+(\.processesPerReplica)?)? ",
    r"(parallelism|batch)\.\w+ \w+ is for replicas that are alike",
    r"optimizeMode cluster divides",
    r"(budget\.\w+|deadline) needs the length of the job",
    r"batch\.\w+ \d+ is more than",
    r"batch\.tune is only for data-parallel",
    "steps and examples both give the length",
    r"(job|name) .* is not the .* of the path",
    # 4.0 is a whole number to a schema, and none to whoever reads JSON into types.
    r".* is (no|not a) whole number|.*Expected `int.*, got `float`",
    # Characters by their class, and a limit of the text that is left of it.
    r"name .* is over",
    # Who asks decides.
    "by .* is refused: only a scaler may name another person",
    # What is stored, or on the disk, decides.
    r"metric .* is",
    r"pool .* has no scaler",
    r"replicas \d+ (is not within the bounds|counts all roles)",
    r"replicas\.(min|start) \d+ does not fit",
    r"role .* is neither a role nor a group of the job",
    r"environment\..*\.from(File|Secret) ",
)


@schemathesis.check
def accepted_or_refused_by_a_rule(ctx: Any, response: Any, case: Any) -> bool | None:
    """What the schema allows is refused by ``RULES`` alone."""
    if response.status_code == 422:
        detail = response.json()["detail"]
        if any(re.match(rule, detail, re.DOTALL) for rule in RULES):
            return None
    return positive_data_acceptance(ctx, response, case)


@schemathesis.check
def refused_or_each_sample_is(ctx: Any, response: Any, case: Any) -> bool | None:
    """What the schema forbids is refused; a batch is answered by 200, and which samples were."""
    batch = case.operation.path == "/api/v1/telemetry" and response.status_code == 200
    if batch and response.json()["rejected"]:
        return None
    return negative_data_rejection(ctx, response, case)
