"""Mappings at once share the cores, in whatever order they end, and leave what was before.

OpenBLAS obeys one thread alone, unless that is released: these are of several.
"""

from contextlib import ExitStack
from threading import Barrier, Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from kp_batch.steps.cores import computing_on
from kp_batch.steps.step import Step, ThreadExecutor


def taken() -> set[int]:
    assert np.ones((2, 2)).sum() == 4  # loads NumPy's library of products
    return {
        each.num_threads for each in ThreadpoolController().select(user_api="blas").lib_controllers
    }


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_of_two_at_once_the_least_counts_and_at_the_end_what_was_before(first_to_end: int) -> None:
    with threadpool_limits(4, "blas"):
        one, other = ExitStack(), ExitStack()
        one.enter_context(computing_on(3))
        assert taken() == {3}
        other.enter_context(computing_on(2))
        assert taken() == {2}
        [first, second] = [one, other][:: -1 if first_to_end else 1]
        first.close()
        assert taken() == {3 if first_to_end else 2}
        second.close()
        assert taken() == {4}


def test_two_runs_that_overlap_leave_the_process_what_it_had() -> None:
    begun, first_is_over, within = Barrier(2), Barrier(2), list[set[int]]()

    def map_first() -> None:
        [*ThreadExecutor(2).map(Step("part", lambda _: begun.wait(20)), [0, 1][:1])]
        first_is_over.wait(20)

    def map_second() -> None:
        def part(_: int) -> None:
            begun.wait(20)
            first_is_over.wait(20)
            within.append(taken())

        [*ThreadExecutor(2).map(Step("part", part), [0])]

    with threadpool_limits(7, "blas"):
        threads = [Thread(target=map_first), Thread(target=map_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert taken() == {7}
    assert within == [{2}]
