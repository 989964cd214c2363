"""The OpenAPI document against a service that runs, by schemathesis, which is not ours.

`make fuzz` runs it: ``BRAIN_TEST_FUZZ`` is the number of requests made up per operation.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brain import calls
from tests.serving import service

FUZZED = os.environ.get("BRAIN_TEST_FUZZ", "")
_CONFIG = Path(__file__).with_name("schemathesis.toml")
_RULES = Path(__file__).with_name("contract_rules.py")
#: What the service serves; another test compares.
_DOCUMENT = Path(__file__).parents[2] / "docs/reference/openapi.json"
#: Streams without an end, and what ends the token that asks.
_LEFT_OUT = ("/api/v1/events", "/api/v1/jobs/{job}/logs", "/api/v1/tokens/{token}")
_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,accepted_or_refused_by_a_rule,refused_or_each_sample_is"
)


@pytest.mark.skipif(not FUZZED, reason="make fuzz runs it, for minutes")
@pytest.mark.parametrize("who", ["admin", "scaler"])
def test_the_service_keeps_to_its_openapi_document(tmp_path: Path, who: str) -> None:
    unlimited = ("--requests-per-second=1e6", "--program-requests-per-second=1e6")
    with service(tmp_path / "home", *unlimited) as running:
        with running.client() as admin:
            # The first name that is made up for a job: so there is one.
            admin.send(calls.submit({"name": "0", "command": ["true"]}))
        command = [str(Path(sys.executable).with_name("st")), f"--config-file={_CONFIG}", "run"]
        command += [str(_DOCUMENT), f"--url={running.url}"]
        command += [f"--header=Authorization: Bearer {running.token(who)}", f"--checks={_CHECKS}"]
        command += [f"--exclude-path={path}" for path in _LEFT_OUT]
        command += ["--phases=coverage,fuzzing", f"--max-examples={FUZZED}", "--no-color"]
        command += ["--request-timeout=60", "--continue-on-failure"]
        hooks = os.environ | {"SCHEMATHESIS_HOOKS": str(_RULES)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=hooks)
        held = peak_bytes(running.process.pid)

    assert done.returncode == 0, done.stdout[done.stdout.find("= FAILURES") :]
    assert held < 1 << 30


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
