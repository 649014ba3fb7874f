"""Shared by all tests: the seed, and its override."""

import os

import jax
import pytest

SEED = int(os.environ.get("TALLCHAIN_TEST_SEED", "20170811"))


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(SEED)
