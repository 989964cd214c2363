"""A destroyed gloo group is kept until its threads have let go of everything."""

import gc
import importlib.util
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import launcher

TORCH = "torch.distributed.distributed_c10d"


class Group:
    def __init__(self, name: str) -> None:
        self.group_name = name


class TCPStore:
    pass


class FileStore:
    pass


class PrefixStore:
    def __init__(self, underlying_store: object) -> None:
        self.underlying_store = underlying_store


@pytest.fixture
def parting(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The guest, as workers load it, beside a torch of two gloo groups and one of NCCL."""
    groups = {Group("all"): "cpu:gloo,cuda:nccl", Group("some"): "gloo", Group("cards"): "nccl"}
    stores = dict.fromkeys(groups, ("gloo", PrefixStore(TCPStore())))
    world = SimpleNamespace(pg_map=stores, pg_backend_config=dict(groups))
    torch = SimpleNamespace(
        _world=world,
        _update_default_pg=lambda group: None,
        _unregister_process_group=lambda name: None,
    )
    monkeypatch.setitem(sys.modules, TORCH, torch)  # type: ignore[arg-type]  # stands for torch
    path = Path(launcher.__file__).parent / "inject" / "parting.py"
    spec = importlib.util.spec_from_file_location("_brain_parting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.begin()
    del groups, stores
    yield module
    module.STILL_SECONDS = -1.0
    module.keep(torch, [])


def _forgotten(world: SimpleNamespace) -> "dict[str, weakref.ref[Group]]":
    """What destroy_process_group does to torch's own books."""
    seen = {group.group_name: weakref.ref(group) for group in world.pg_map}
    world.pg_map.clear()
    world.pg_backend_config.clear()
    gc.collect()
    return seen


def test_all_gloo_groups_outlive_the_end_of_the_world(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    torch._update_default_pg(None)
    seen = _forgotten(torch._world)

    assert [name for name, group in seen.items() if group() is not None] == ["all", "some"]


def test_one_group_that_is_destroyed_is_kept(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    torch._unregister_process_group("some")
    seen = _forgotten(torch._world)

    assert [name for name, group in seen.items() if group() is not None] == ["some"]


def test_groups_that_met_in_a_file_go_with_their_file(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    store = PrefixStore(PrefixStore(FileStore()))
    torch._world.pg_map = dict.fromkeys(torch._world.pg_map, ("gloo", store))
    torch._update_default_pg(None)
    seen = _forgotten(torch._world)

    assert [name for name, group in seen.items() if group() is not None] == []


def test_a_new_default_group_keeps_nothing(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    torch._update_default_pg(next(iter(torch._world.pg_map)))
    seen = _forgotten(torch._world)

    assert [name for name, group in seen.items() if group() is not None] == []


def test_a_group_that_has_long_been_still_goes(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    torch._update_default_pg(None)
    seen = _forgotten(torch._world)
    parting.STILL_SECONDS = -1.0

    torch._update_default_pg(None)
    gc.collect()

    assert [name for name, group in seen.items() if group() is not None] == []


def test_another_torch_ends_its_groups_its_own_way(parting: ModuleType) -> None:
    torch = sys.modules[TORCH]
    del torch._world

    torch._update_default_pg(None)
