"""What the tests of downloads share."""

from __future__ import annotations

import pytest

from tests.datasets.https_server import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The authority, trusted by this process and its children."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
    return authority
