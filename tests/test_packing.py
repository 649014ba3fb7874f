"""Records of several types as words, and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallchain.packing import num_words, pack, unpack

DTYPES = ["bool", "int8", "uint8", "int16", "bfloat16", "float16", "int32", "uint32", "float32", "int64", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_comes_out_is_what_went_in(dtype: str) -> None:
    with jax.enable_x64(True):
        bits = np.random.default_rng(3).integers(0, 2**64, 60, np.uint64)
        kind = jnp.dtype(dtype)
        values = bits % 2 == 1 if dtype == "bool" else bits.astype(f"u{kind.itemsize}").view(kind)
        records = {"a": jnp.asarray(values.reshape(5, 3, 4)), "b": jnp.asarray(values[:5]), "c": jnp.arange(5.0)}
        like = jax.eval_shape(lambda records: jax.tree.map(lambda leaf: leaf[0], records), records)
        words = np.asarray(jax.jit(pack)(records))
        assert words.shape == (5, num_words(like))
        found = unpack(words, like)
        for name, leaf in records.items():
            assert found[name].dtype == leaf.dtype
            assert found[name].shape == leaf.shape
            assert found[name].tobytes() == np.asarray(leaf).tobytes()  # NaN and -0 too
