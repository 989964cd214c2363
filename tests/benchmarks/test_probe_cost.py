"""The probe's share of a step is judged over pairs, not by its fastest or its slowest."""

from benchmarks import probe_cost


def test_the_share_is_the_median_of_the_pairs() -> None:
    found = probe_cost.row("a step", [(408, 400), (900, 400), (420, 400)])

    assert found.value == 5.0
    assert found.met


def test_more_than_an_eighth_of_a_step_is_too_much() -> None:
    assert not probe_cost.row("a step", [(450, 400)] * 3).met


def test_what_the_machine_slows_down_in_both_halves_of_a_pair_costs_nothing() -> None:
    assert probe_cost.row("a step", [(800, 800), (400, 400), (4000, 4000)]).value == 0.0
