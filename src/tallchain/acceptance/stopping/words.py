"""Words for the stopping rules: each means the part with its defaults."""

from __future__ import annotations

from typing import Any

import jax

from tallchain.acceptance.stopping.fresh import Fresh
from tallchain.acceptance.stopping.growth import Growth
from tallchain.acceptance.stopping.pilot import Pilot
from tallchain.acceptance.stopping.rule import StoppingRule
from tallchain.acceptance.stopping.stein import Stein
from tallchain.validation import brief

RULES: dict[str, type[StoppingRule]] = {"fresh": Fresh, "pilot": Pilot, "stein": Stein, "growth": Growth}


def as_rule(call: str, stopping: Any, *, may_weigh: bool = True) -> StoppingRule:
    """Return the rule that a word means, or the rule itself; refuse what is neither.

    Args:
        call: the name of the test, for the error.
        stopping: what it was given.
        may_weigh: whether the test can use a rule that weights two means.
    """
    words = [word for word, rule in RULES.items() if may_weigh or not rule().terms.weighs]
    if isinstance(stopping, str) and stopping in words:
        return RULES[stopping]()
    if _is_rule(stopping) and (may_weigh or not stopping.terms.weighs):
        return stopping
    raise ValueError(
        f"`{call}(stopping=...)` must be one of {', '.join(words)}; got {brief(stopping)}. "
        + (
            f"Did you mean `{stopping.__name__}(...)`?"
            if isinstance(stopping, type)
            else "It may also be such a rule with settings of its own, as `Fresh(least_rows=50)`, or one of yours: see "
            "`tallchain.acceptance.stopping`."
        )
    )


def quoted(rule: StoppingRule) -> str:
    """Quote a rule in an error; a rule with its defaults is quoted as its word."""
    structure = jax.tree.structure(rule)
    words = (word for word, kind in RULES.items() if jax.tree.structure(kind()) == structure)
    return brief(next(words, rule))


def _is_rule(stopping: Any) -> bool:
    """Whether a value has the methods of a rule and is a pytree, as parts are, so that `jit` accepts it."""
    is_part = not isinstance(stopping, type) and not jax.tree_util.all_leaves([stopping])
    return is_part and isinstance(stopping, StoppingRule)
