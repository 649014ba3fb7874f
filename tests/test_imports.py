"""The core is light: `import tallchain` stays small, and sampling needs jax, numpy and scipy alone."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("matplotlib", "xarray", "arviz_base", "arviz_stats", "typer", "scipy.stats", "pandas", "blackjax", "rich")
HEAVY += ("numpyro",)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    loaded = run("import sys, tallchain; print(*sys.modules)").split()
    assert "tallchain" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_samples_with_the_core_alone() -> None:
    """With everything else blocked, as on a machine that has only the core."""
    code = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {[name for name in HEAVY if "." not in name]!r}:
            raise ImportError(f"blocked: {{name}}")
sys.meta_path.insert(0, Block())
import jax, tallchain as tc
assert tc.checking.audit is tc.audit
mixture = tc.models.gaussian_mixture(20_000)
kernel = tc.MetropolisHastings(mixture.posterior, tc.Shuffled(mixture.data, 50), proposal=tc.RandomWalk(0.15))
print(tc.sample(jax.random.key(0), kernel, jax.numpy.array([0.0, 1.0]), 20, num_chains=2))
"""
    assert "2 chains x 20 draws" in run(code)
