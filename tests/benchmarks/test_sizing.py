"""The rule for one job, lived by a made-up script in the study of its regret."""

import numpy as np

from benchmarks.sizing import RULES, Script, lived

#: A script that scales to four replicas and no further.
FLAT_AFTER_FOUR = Script(
    seconds={1: 1.0, 2: 0.52, 4: 0.3, 8: 0.3},
    nodes={1: 1, 2: 1, 4: 1, 8: 2},
    batch=dict.fromkeys((1, 2, 4, 8), 64),
)


def test_the_rule_ends_at_a_size_that_is_nearly_the_best() -> None:
    rule = next(iter(RULES.values()))
    _, final, changes = lived(FLAT_AFTER_FOUR, rule, 6.0, np.random.default_rng(1))
    assert final < 20
    assert 1 <= changes < 12
