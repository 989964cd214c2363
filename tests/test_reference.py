"""What comments cite is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
CITED = re.compile(r"models\.md(?:\s|#:)+(?:sections?\s+)?(\d(?:\.\d)?)(?:, (\d\.\d))?")


def test_every_cited_section_of_the_models_reference_is_there():
    headings = re.findall(r"^#+ (\d(?:\.\d)?)\.? ", _text("docs/reference/models.md"), re.M)
    cited = {
        section
        for folder in ("brain", "benchmarks")
        for file in (ROOT / folder).rglob("*.py")
        for found in CITED.findall(file.read_text())
        for section in found
        if section
    }

    assert len(cited) > 10
    assert cited <= set(headings)


def _text(path: str) -> str:
    return (ROOT / path).read_text()
