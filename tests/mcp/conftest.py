"""Fixtures of the tests of servers."""

import os

import pytest

from tests.mcp import official


@pytest.fixture(scope="session")
def conformance() -> official.Suite:
    """The official suite. Without npm or its registry its tests are left out, unless it is required."""
    try:
        return official.ready()
    except official.UnreachableError as error:
        if os.environ.get(official.VARIABLE) == official.REQUIRED:
            raise
        pytest.skip(f"the official conformance suite cannot be had: {error}")
