"""The bytes of divided state are read from optimizers of any kind."""

from types import SimpleNamespace

from collectors.probe.sharding import Part


def _tensor(count: int, **marks: object) -> SimpleNamespace:
    return SimpleNamespace(numel=lambda: count, element_size=lambda: 4, **marks)


def test_a_state_that_is_no_mapping_counts_nothing() -> None:
    own = _tensor(10, device_mesh=None)
    state = {own.numel: {"moment": _tensor(10)}, "step": 3}
    optimizer = SimpleNamespace(param_groups=[{"params": [own]}], state=state)
    part = Part()
    assert part.read(part.due, optimizer, ()) == 40 + 2 * 40
