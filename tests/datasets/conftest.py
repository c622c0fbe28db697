"""Shared fixtures for the tests of downloads."""

from __future__ import annotations

import pytest

from tests.datasets.https_server import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """A certificate authority that this process and its children trust."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
    return authority
