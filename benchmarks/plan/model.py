"""The plan: how long each step takes, and how many bytes it needs, from constants that were measured.

A fleet of P processes has as many parts of M rows, or several for each process. One process reads, sweeps and samples
its own parts; after each chunk of draws, and each sweep, all tell each other what they found. Then

    reading     bytes of the parts, by the speed of the disk
    sweeping    passes M / cores, until the slowest process has come
    telling     P^2 requests of one server, and then P messages to each process
    sampling    rounds of `length` draws of the chains of a part, until the slowest has come
    digesting   the draws of all processes, by each process
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.stats import norm

from tallchain.sources.divided import LEAST_ROUND

SLOTS, SHORT = 256, 2**12
"""Draws of a chain in a chunk, and bytes of a short message: of the library, as it is."""
_HEADERS = 1200  # bytes of a message beside its numbers, about


class Constants(NamedTuple):
    """What was measured on one core."""

    row_bytes: float
    disk_bytes: float
    pack_byte: float
    """Seconds, as all others from here on."""
    read_byte: float
    """Of a file that is in the cache of the system."""
    sweep_row: float
    """Of all passes of `prepare` together."""
    prepare_once: float
    """Mostly compiling."""
    compile_once: float
    """Of the sampler."""
    scan_once: float
    scan_row: float
    draw: float
    chunk: float
    chunk_part: float
    """More for each part of the process."""
    digest_chain: float
    """Of a chunk, for each chain of all processes."""
    digest_draw: float
    """For each draw of all processes."""
    request: float
    """From a process to the store and back."""
    serve: float
    """What the store itself works for it."""
    collective: float
    """Between two processes."""
    collective_once: float
    """Compiling it, for messages of each size."""
    collective_byte: float
    """For each byte that a process receives."""
    passes: float
    sweeps: float
    variance: float
    """S^2, at `variance_rows` rows; with an expansion of order 2 it falls as 1/N."""
    variance_rows: float
    effective: float
    """Effective draws of a draw."""
    draw_bytes: float
    chain_bytes: float
    """Of a checkpoint."""

    @classmethod
    def of(cls, measured: dict[str, Any]) -> Constants:
        """Take medians, and slopes between the smaller and the larger size."""
        one, rounds = measured["one"], list(measured["one"]["rounds"].values())
        small, large = one["rows"]

        def slope(name: str, first: int = 1) -> float:
            a, b = (float(np.median(of[first:])) for of in one[name])
            return (b - a) / (large - small)

        warm = [float(np.median(of[1:])) for of in one["preparing"]]
        seconds, digesting = (np.array([np.median(of[name]) for of in rounds]) for name in ("seconds", "digesting"))
        chunks, draws, chains = (np.array([of[name] for of in rounds], float) for name in ("chunks", "draws", "chains"))
        parts = np.array([of["parts"] for of in rounds], float)
        digest = _fit(digesting, [chunks * chains, draws])
        sample = _fit(seconds - digesting, [draws, chunks, chunks * parts])
        talk = {of["processes"]: of for of in measured["talk"]}
        most, pair = talk[max(talk)], talk[2]["seconds"]
        requests = max(talk) ** 2 + max(talk)
        return cls(
            row_bytes=one["row_bytes"],
            disk_bytes=one["disk_bytes"],
            pack_byte=(one["packing"][1] - one["packing"][0]) / (large - small) / one["row_bytes"],
            read_byte=slope("reading", 0) / one["row_bytes"],
            sweep_row=slope("preparing"),
            prepare_once=one["preparing"][0][0] - warm[0] + max(warm[0] - slope("preparing") * small, 0),
            compile_once=one["compiling"],
            scan_once=max(one["scanning"][0][0] - slope("scanning") * small, 0),
            scan_row=slope("scanning"),
            draw=sample[0],
            chunk=sample[1],
            chunk_part=sample[2],
            digest_chain=digest[0],
            digest_draw=digest[1],
            request=pair[0] / 3,
            serve=(most["busy"][0] - float(np.median(most["busy"][1:]))) / requests,
            collective=pair[1] - pair[0],
            collective_once=float(np.median(np.subtract(talk[2]["first"], pair)[1:])),
            collective_byte=(pair[-1] - pair[1]) / (2 * (2**23 - 2**16)),
            passes=one["passes"],
            sweeps=one["sweeps"],
            variance=one["variance"][0],
            variance_rows=large,
            effective=float(np.median([of["effective"] for of in rounds])),
            draw_bytes=one["checkpoint"]["draw"],
            chain_bytes=one["checkpoint"]["state_of_a_chain"],
        )


def _fit(seconds: np.ndarray, counts: Iterable[np.ndarray]) -> list[float]:
    """Return what each of the things counted takes, by least squares of relative errors; nothing takes less than 0."""
    matrix = np.stack(list(counts), 1)
    return nnls(matrix / seconds[:, None], np.ones(len(seconds)))[0].tolist()


class Fleet(NamedTuple):
    """The machines."""

    processes: int
    cores: int = 1
    """Of a process."""
    disk: float = math.inf
    """Bytes that a process reads from its disk in a second."""
    spread: float = 0.05
    """Standard deviation of the logarithms of speeds: of devices, and of the same device from time to time."""

    @property
    def slowest(self) -> float:
        """How much longer the slowest takes."""
        return math.exp(math.sqrt(2) * self.spread * norm.ppf(1 - 1 / (self.processes + 1)))


class Job(NamedTuple):
    """What is to be done."""

    rows: int
    parts: int
    chains: int
    """In each part."""
    draws: int
    """Of each chain, at least."""
    features: int
    least_round: int = LEAST_ROUND

    @property
    def length(self) -> int:
        """Draws of a chain in a part, as `tallchain.rounds` has it."""
        return -(-self.draws // (self.parts * self.tours))

    @property
    def tours(self) -> int:
        """How often each chain is in each part."""
        return max(self.draws // (self.parts * self.least_round), 1)

    @property
    def rounds(self) -> int:
        """In all."""
        return self.parts * self.tours

    @property
    def chunks(self) -> int:
        """Of a round: the first of a long one are short."""
        return -(-self.length // SLOTS) + (self.length > SLOTS)

    @property
    def all_draws(self) -> int:
        """Of all chains."""
        return self.parts * self.chains * self.rounds * self.length

    @property
    def part_rows(self) -> int:
        """M."""
        return self.rows // self.parts

    def part_error(self, variance: float) -> float:
        """e; see `tallchain.sources.divided`."""
        return math.sqrt(variance / self.part_rows * (1 - 1 / self.parts))


class Steps(NamedTuple):
    """Seconds."""

    reading: float
    sweeping: float
    """Of `prepare`, with what it does once."""
    sampling: float
    """Making draws, with compiling, and waiting for the slowest."""
    telling: float
    """After each chunk of draws."""
    digesting: float
    scanning: float

    @property
    def total(self) -> float:
        """Of all."""
        return sum(self)


def message(constants: Constants, job: Job, fleet: Fleet) -> float:
    """Bytes that a process tells the others after a chunk."""
    chains = job.chains * job.parts // fleet.processes
    numbers = chains * (constants.draw_bytes * -(-job.length // job.chunks) + 4 * job.features + 8)
    return numbers + _HEADERS


def telling(constants: Constants, fleet: Fleet, size: float, *, by_store: bool = True) -> float:
    """Return the seconds in which all processes tell each other a message of some bytes.

    The store answers P (P + 1) requests, one after another on one core; long messages then go by a collective, whose
    latency grows with the logarithm of P, and each process receives P of them. Not `by_store`: short ones, too.
    """
    count = fleet.processes
    if count == 1:
        return 0.0
    store = max((count + 1) * constants.request, count * (count + 1) * constants.serve) if by_store else 0.0
    if by_store and size <= SHORT:
        return store
    return store + collective(constants, count, size)


def collective(constants: Constants, count: int, size: float) -> float:
    """Return the seconds of a collective, by which so many processes tell each other so many bytes, padded."""
    step = 2.0 ** (math.ceil(math.log2(size)) - 4)
    padded = step * math.ceil(size / step)
    return constants.collective * math.log2(count) + constants.collective_byte * count * padded


def planned(constants: Constants, job: Job, fleet: Fleet, *, is_lifted: bool = False) -> Steps:
    """Return how long the steps take; lifted: with limits of the library taken away, as `docs/scale.md` has them."""
    here, chunks = job.parts // fleet.processes, job.rounds * job.chunks
    rows = here * job.part_rows
    say, after = telling(constants, fleet, 2 * SHORT, by_store=not is_lifted), message(constants, job, fleet)
    once = 0.0 if fleet.processes == 1 else constants.collective_once
    made = job.all_draws / fleet.processes
    seen = 1 if is_lifted else fleet.processes
    return Steps(
        reading=rows * constants.row_bytes * max(constants.read_byte, 1 / fleet.disk),
        sweeping=constants.prepare_once
        + rows * constants.sweep_row / fleet.cores * fleet.slowest
        + (constants.sweeps - 1) * say
        + once,
        sampling=constants.compile_once
        + fleet.slowest
        * (made * constants.draw / fleet.cores + chunks * (constants.chunk + here * constants.chunk_part)),
        telling=chunks * telling(constants, fleet, after, by_store=not is_lifted)
        + (once if is_lifted or after > SHORT else 0),
        digesting=chunks * constants.digest_chain * job.chains * here * seen + made * constants.digest_draw * seen,
        scanning=constants.scan_once + rows * constants.scan_row / fleet.cores * fleet.slowest + say,
    )
