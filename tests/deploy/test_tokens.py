"""Tokens that somebody put into the state directory, as a mounted Secret does."""

import base64
from pathlib import Path

import pytest

from brain.api import auth
from brain.api.secrets import Seal
from brain.errors import NotAllowed
from brain.inmemory import MemoryStores
from brain.service.start import admit
from brain.settings import Settings
from brain.types.record import Role
from tests.builders import NOW

NETWORK = Settings(host="10.1.2.3", allow_remote_submit=True)


def mounted(home: Path, **tokens: str) -> Path:
    """A state directory with tokens that cannot be written."""
    home.mkdir()
    for name, secret in tokens.items():
        (home / f"{name}.token").write_text(secret + "\n")
        (home / f"{name}.token").chmod(0o440)
    return home


def test_mounted_tokens_are_known_and_let_the_service_listen_on_the_network(tmp_path: Path) -> None:
    stores = MemoryStores()
    home = mounted(tmp_path / "home", admin="brn_a", scaler="brn_s", viewer="brn_v")
    before = {path.name: path.stat().st_ino for path in home.iterdir()}
    admit(home, NETWORK, stores, NOW)
    with stores.transaction(read_only=True) as tx:
        roles = {
            secret: token.role
            for secret in ("brn_a", "brn_s", "brn_v")
            if (token := tx.access.token(auth.sha256(secret)))
        }
    assert roles == {"brn_a": Role.ADMIN, "brn_s": Role.SCALER, "brn_v": Role.VIEWER}
    assert {path.name: path.stat().st_ino for path in home.iterdir()} == before


def test_a_second_start_with_the_same_secret_changes_nothing(tmp_path: Path) -> None:
    stores = MemoryStores()
    home = mounted(tmp_path / "home", admin="brn_a", scaler="brn_s")
    admit(home, NETWORK, stores, NOW)
    admit(home, NETWORK, stores, NOW)
    with stores.transaction(read_only=True) as tx:
        assert len(tx.access.tokens()) == 2


def test_without_tokens_the_network_stays_shut_and_none_are_made(tmp_path: Path) -> None:
    home = mounted(tmp_path / "home")
    with pytest.raises(NotAllowed, match="no token exists"):
        admit(home, NETWORK, MemoryStores(), NOW)
    assert list(home.iterdir()) == []


def test_a_key_that_openssl_made_seals(tmp_path: Path) -> None:
    # `openssl rand -base64 32` may have `+` and `/` in it.
    (tmp_path / "key").write_text(base64.b64encode(bytes([251, 255] * 16)).decode() + "\n")
    seal = Seal.of(tmp_path / "key")
    assert seal.open(seal.close({"KEY": "1"})) == {"KEY": "1"}
