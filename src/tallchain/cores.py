"""Work for all cores: functions that let go of Python's lock, in threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def divisor(count: int, most: int) -> int:
    """Return the largest number, at most `most`, that divides `count`."""
    return next((each for each in range(most, 1, -1) if count % each == 0), 1)


def in_order(function: Callable[[int], Any], values: Sequence[int], threads: int) -> Iterator[Any]:
    """Yield what a function returns for each value, some of them computed ahead."""
    if len(values) == 1:
        yield function(values[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Any]] = deque()
        for value in values:
            ahead.append(pool.submit(function, value))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
