"""Every two runs compare as plain loops over their scores do, part by part."""

from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from kp_batch.errors import KpBatchError
from kp_batch.operations.compare import compare
from tests.support.oracle.answers import assert_same, is_near
from tests.support.oracle.comparisons import PARTS, comparison, moves
from tests.support.oracle.history import History, State

pytestmark = pytest.mark.slow


@pytest.mark.telling
def test_law_runs_compare_as_their_scores_do(history: History) -> None:
    for first, second in product(history.states, repeat=2):
        assert_compared(history, first, second)


@pytest.mark.telling
def test_law_so_do_those_over_a_drawn_archive(by_chance: History) -> None:
    assert_compared(by_chance, *by_chance.states)


def assert_compared(history: History, first: State, second: State) -> None:
    if first.settings.embedder != second.settings.embedder:
        with pytest.raises(KpBatchError, match="are not comparable"):
            compare(history.warehouse, first.run_id, second.run_id)
    result = asdict(compare(history.warehouse, first.run_id, second.run_id, force=True))
    wanted = dict(comparison(first, second))
    assert_same(
        [_flat(row) for row in result["domains"]], [_flat(row) for row in wanted["domains"]]
    )
    means = ("before_mean", "after_mean")
    assert_same(*([{name: each[name] for name in means}] for each in (result, wanted)))
    others = wanted.keys() - {"domains", *means}
    assert {name: result[name] for name in others} == {name: wanted[name] for name in others}
    assert_moved(result["movers"], moves(first, second))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The quantiles as numbers, which are compared nearly."""
    lists = {name for name in row if name.endswith("_quantiles")}
    numbers = {f"{name}_{at}": value for name in lists for at, value in enumerate(row[name])}
    return {name: row[name] for name in row.keys() - lists} | numbers


def assert_moved(movers: list[dict[str, Any]], moved: list[dict[str, Any]]) -> None:
    """The first of those that moved are listed, with parts that sum to the change."""
    ordered = sorted(
        (move for move in moved if move["change"]),
        key=lambda move: (-abs(move["change"]), move["trace_id"]),
    )
    names = ordered[0].keys() if ordered else ()
    assert_same([{name: move[name] for name in names} for move in movers], ordered[: len(movers)])
    assert len(movers) == min(100, len(ordered))
    for move in movers:
        assert is_near(sum(move[name] for name in PARTS), move["change"])
