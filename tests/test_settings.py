"""Settings from several sources, later ones winning."""

from typing import Any

import pytest

from brain.errors import BadInput, UnknownField
from brain.settings import Settings, settings_from, settings_in_environment


def test_without_a_source_the_defaults_hold():
    assert settings_from() == Settings()


def test_a_later_source_wins():
    assert settings_from({"port": 1}, {"port": 2}).port == 2


def test_an_unknown_setting_names_the_nearest_one():
    with pytest.raises(UnknownField, match="did you mean tick_seconds") as refused:
        settings_from({"tick_second": 1})

    assert refused.value.field == "tick_second"


@pytest.mark.parametrize(
    ("given", "read"), [("true", True), ("1", True), ("No", False), (False, False)]
)
def test_truth_is_read_from_words(given: Any, read: bool):
    assert settings_from({"allow_remote_submit": given}).allow_remote_submit is read


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("allow_remote_submit", "perhaps", "neither true nor false"),
        ("port", "many", "is not a whole number; write 4, for example"),
        ("tick_seconds", None, "is not a number; write 0.5, for example"),
        ("policy_mode", "yolo", "choose one of off, shadow, approve, auto"),
        ("port", "65536", "port 65536 is not a TCP port; give 0"),
        ("port", -1, "port -1 is not a TCP port"),
        ("tick_seconds", "-0.5", "tick_seconds -0.5 is not a duration; give seconds, 0 or more"),
        ("stale_seconds", "nan", "stale_seconds nan is not a duration"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, value: Any, said: str):
    with pytest.raises(BadInput, match=said) as refused:
        settings_from({name: value})

    assert refused.value.field == name


def test_the_environment_is_read_by_prefix_and_the_rest_is_ignored():
    environment = {"BRAIN_TICK_SECONDS": "0.5", "BRAIN_WORKER": "{}", "HOME": "/root"}

    assert settings_in_environment(environment) == {"tick_seconds": "0.5"}
    assert settings_from(settings_in_environment(environment)).tick_seconds == 0.5


@pytest.mark.parametrize("key", ["minimum_gain", "moved_share", "spread_limit"])
@pytest.mark.parametrize("value", ["nan", "-0.1", "inf"])
def test_a_share_that_is_none_is_refused_by_name(key: str, value: str):
    with pytest.raises(BadInput, match="is not a share; give 0 or more") as refused:
        settings_from({key: value})
    assert refused.value.field == key
