"""``brain freeze`` as each role: carried through, or refused by the role that it needs."""

import re

import pytest

from brain import calls
from brain.client import BrainClient
from brain.types.record import Role
from tests.cli.terminal import typed


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN])
def test_a_freeze_is_carried_through_or_names_the_role(service: dict[str, str], role: Role) -> None:
    with BrainClient(service["BRAIN_URL"], service["BRAIN_TOKEN"]) as client:
        token = client.send(calls.mint_token(f"{role}-at-a-terminal", role)).secret
    person = {"BRAIN_URL": service["BRAIN_URL"], "BRAIN_TOKEN": token}
    done = typed("freeze", "--project", "vision", "--why", "a new disk", environment=person)
    listed = typed("freeze", environment=person)
    thawed = typed("freeze", "--off", "--project", "vision", environment=person)
    assert listed.returncode == 0, listed.stderr
    if role in (Role.OPERATOR, Role.ADMIN):
        assert (done.returncode, thawed.returncode) == (0, 0)
        assert f"{role}-at-a-terminal" in listed.stdout
        assert "a new disk" in listed.stdout
        assert "vision" not in typed("freeze", environment=person).stdout
        return
    for refused in (done, thawed):
        assert (refused.returncode, refused.stdout) == (4, "")
        assert re.fullmatch(
            rf"brain: (POST|DELETE) /api/v1/freeze\S* needs the role operator, admin; {role}-at-a-"
            rf"terminal has the role {role}; ask an administrator for a token with such a "
            r"role\n",
            refused.stderr,
        )
    assert "vision" not in listed.stdout
