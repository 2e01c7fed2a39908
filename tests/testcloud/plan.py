# SPDX-License-Identifier: Apache-2.0
"""Carries out steps that wait for one another, as many at once as can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True)
class Step:
    """Something to do.

    :ivar after: names of the steps that must be done before.
    """

    name: str
    do: Callable[[], object]
    after: tuple[str, ...] = ()


def order(steps: Iterable[Step]) -> TopologicalSorter[str]:
    """The steps' order.

    :raises ValueError: two of one name, one that waits for nobody's name, or a circle.
    """
    listed = list(steps)
    names = {step.name for step in listed}
    if len(names) != len(listed):
        raise ValueError("two steps have the same name")
    for step in listed:
        if missing := set(step.after) - names:
            raise ValueError(f"{step.name} waits for {sorted(missing)}, which is no step")
    sorter = TopologicalSorter({step.name: step.after for step in listed})
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"steps wait for one another: {error.args[1]}") from None
    return sorter


def carry_out(
    steps: Iterable[Step], tell: Callable[[str, float], None], *, at_once: int = 16
) -> None:
    """Do all steps, and `tell` the name and the seconds of each that is done.

    If one raises, none is begun any more, and its exception is raised when those under way ended.
    """
    listed = {step.name: step for step in steps}
    sorter = order(listed.values())
    running: dict[Future[float], str] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            if failure is None:
                for name in sorter.get_ready():
                    running[pool.submit(_timed, listed[name].do)] = name
            if not running:
                break
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                name = running.pop(future)
                error = future.exception()
                if error is not None:
                    failure = failure or error
                    continue
                tell(name, future.result())
                sorter.done(name)
    if failure is not None:
        raise failure


def _timed(do: Callable[[], object]) -> float:
    begun = time.monotonic()
    do()
    return time.monotonic() - begun
