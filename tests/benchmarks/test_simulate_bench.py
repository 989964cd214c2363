"""The benchmark of ``brain simulate``: which lists, what is compared, what is published."""

import csv
from pathlib import Path

from benchmarks.simulate import CASES, SEEDS, TUNING, Lists, rows


def test_a_list_is_its_first_eighty_jobs_without_imagenet(tmp_path: Path):
    found = list(csv.DictReader(Lists(tmp_path).text(SEEDS[1]).splitlines()))

    assert len(found) == 80
    assert "imagenet" not in {row["application"] for row in found}


def test_the_bar_counts_all_lists_and_the_generated_ones_are_told_alone(tmp_path: Path):
    def played(lists: Lists, number: int, policy: str, arguments: object) -> float:
        return 100.0 if policy == "tiresias" else 70.0 if number in TUNING else 80.0

    every, generated, tuning = rows(Lists(tmp_path), [CASES["asked"]], played)

    assert (round(every.value, 4), every.bar) == (0.7625, 0.75)
    assert not every.met
    assert (generated.value, generated.bar) == (0.8, None)
    assert "tuning set" in tuning.metric
    assert "31: 0.80" in generated.note
