"""The change of the mean is split exactly, whatever domains come and go."""

from collections.abc import Mapping
from dataclasses import astuple
from decimal import Decimal
from math import fsum
from random import Random
from typing import Any

import pytest

from kp_batch.operations.turnover import Turnover, turnover, turnover_parts
from kp_batch.parts import as_lines
from tests.support.oracle.answers import is_near
from tests.support.oracle.comparisons import turnover_of

Scores = Mapping[str, float]
PARTS = ("from_came", "from_went", "from_moved")
# Each run's scores by id, which begins with the domain.
UGLY: Mapping[str, tuple[Scores, Scores]] = {
    "one trace that stays": ({"a1": 0.5}, {"a1": 0.5}),
    "one trace that moves": ({"a1": 0.5}, {"a1": 0.25}),
    "one trace replaced": ({"a1": 0.5}, {"a2": 0.75}),
    "one domain replaced": ({"a1": 0.5, "a2": 0.1}, {"b1": 1.0}),
    "a domain comes": ({"a1": 0.5}, {"a1": 0.5, "b1": 0.0, "b2": 1.0}),
    "a domain goes": ({"a1": 0.5, "b1": 0.1}, {"a1": 0.7}),
    "as the mean of the others": ({"a1": 0.25, "b1": 0.25}, {"a1": 0.25, "c1": 0.25}),
    "from nothing": ({}, {"a1": 0.5, "b1": 0.1}),
    "to nothing": ({"a1": 0.5}, {}),
    "thirds": ({"a1": 1 / 3, "a2": 0.1, "b1": 0.7}, {"a1": 2 / 3, "b2": 0.3, "c1": 1e-15}),
}


def lines_of(result: Turnover) -> list[str]:
    return [*as_lines(turnover_parts(result, rest="--json"))]


def split(before: Scores, after: Scores) -> Turnover:
    """As the SQL counts and sums them."""
    sums: dict[str, list[Any]] = {key[0]: [0] * 7 for key in {**before, **after}}
    for key in {**before, **after}:
        own, old, new = sums[key[0]], before.get(key), after.get(key)
        own[0 if old is None else 1 if new is None else 2] += 1
        for place, score in (
            *([(3, new)] if old is None else [(4 if new is None else 5, old)]),
            *([(6, new)] if old is not None and new is not None else []),
        ):
            own[place] += Decimal(f"{score:.15f}")
    return turnover([(domain, *own) for domain, own in sorted(sums.items())])


def assert_split(before: Scores, after: Scores) -> None:
    found = split(before, after)
    wanted = turnover_of(before, after, {key: key[0] for key in {**before, **after}})
    assert is_near(found.first_mean, wanted["first_mean"])
    assert is_near(found.second_mean, wanted["second_mean"])
    assert [row.task_domain for row in found.domains] == [
        row["task_domain"] for row in wanted["domains"]
    ]
    for own, row in zip(found.domains, wanted["domains"], strict=True):
        assert all(is_near(one, two) for one, two in zip(astuple(own), row.values(), strict=True))
    if found.first_mean is None or found.second_mean is None:
        assert {getattr(row, part) for row in found.domains for part in PARTS} <= {None}
        return
    change = found.second_mean - found.first_mean
    for rows in (found.domains[:1], found.domains[1:]):
        total = fsum(getattr(row, part) for row in rows for part in PARTS)
        assert total == pytest.approx(change, rel=0, abs=1e-15)
    back = split(after, before)
    for there, again in zip(found.domains, back.domains, strict=True):
        forth = (there.from_came, there.from_went, there.from_moved)
        assert forth == tuple(
            -(part or 0) for part in (again.from_went, again.from_came, again.from_moved)
        )


@pytest.mark.parametrize("name", UGLY)
def test_the_parts_are_those_of_a_plain_loop_and_sum_to_the_change(name: str) -> None:
    assert_split(*UGLY[name])


def test_so_they_do_of_drawn_scores() -> None:
    chance = Random(7)
    for _ in range(60):
        keys = [f"{chance.choice('abcd')}{number}" for number in range(chance.randrange(12))]
        before, after = (
            {key: chance.random() for key in keys if chance.random() < share}
            for share in (chance.random(), chance.random())
        )
        assert_split(before, after)


def test_a_trace_that_has_the_mean_of_the_others_adds_nothing() -> None:
    rows = split(*UGLY["as the mean of the others"]).domains
    assert {getattr(row, part) for row in rows for part in PARTS} == {0.0}


def test_what_came_and_went_is_told_and_silence_where_nothing_did() -> None:
    lines = lines_of(split(*UGLY["a domain goes"]))
    assert (
        lines[1] == "what changed the mean score of all traces, 0.3000 \N{RIGHTWARDS ARROW} 0.7000:"
    )
    assert [line.split() for line in lines[3:]] == [
        ["all", "0", "1", "0.1000", "+0.0000", "+0.2000", "+0.2000"],
        ["a", "0", "0", "+0.0000", "+0.0000", "+0.2000"],
        ["b", "0", "1", "0.1000", "+0.0000", "+0.2000", "+0.0000"],
    ]
    assert lines_of(split(*UGLY["one trace that moves"])) == []
    assert lines_of(split({}, {})) == []
    assert lines_of(split(*UGLY["from nothing"]))[1] == "which traces came and went:"
