import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.scoring.composite import breakdowns, composite, score
from tests.support.make.profiles import undated

PROFILES = undated()
share = st.floats(0, 1)
rows = st.fixed_dictionaries(
    {
        **dict.fromkeys(DIMENSIONS, share),
        **dict.fromkeys(OVERRIDES, st.booleans()),
        "profile_id": st.sampled_from([profile.profile_id for profile in PROFILES.values()]),
    }
)


@pytest.mark.telling
@pytest.mark.slow
@given(st.lists(rows, min_size=1, max_size=5))
def test_law_a_breakdown_ends_with_the_score_and_its_parts_sum_to_it(
    drawn_rows: list[dict[str, Any]],
) -> None:
    frame = pl.DataFrame(drawn_rows)
    results = breakdowns(frame, PROFILES.values())
    scored = frame.with_columns(composite(PROFILES.values())).with_columns(score())
    assert [result.score for result in results] == scored["score"].to_list()
    assert [result.composite for result in results] == scored["composite"].to_list()
    for result in results:
        first, second, third, fourth = (term.product for term in result.terms)
        assert first + second + third + fourth == result.composite
        total = result.composite + sum(override.change for override in result.overrides)
        assert math.isclose(total, result.score, abs_tol=1e-15)
        assert all(override.applies or not override.change for override in result.overrides)


def test_a_breakdown_names_the_profile_its_weights_and_each_override() -> None:
    row = {
        **dict(zip(DIMENSIONS, (0.5, 1.0, 0.25, 0.8), strict=True)),
        **dict(zip(OVERRIDES, (False, True, True), strict=True)),
        "profile_id": PROFILES["default"].profile_id,
    }
    [result] = breakdowns(pl.DataFrame([row]), PROFILES.values())
    assert (result.profile, result.profile_id) == ("default", PROFILES["default"].profile_id)
    assert [(term.dimension, term.value, term.weight) for term in result.terms] == [
        (name, row[name], getattr(PROFILES["default"], name)) for name in DIMENSIONS
    ]
    assert [
        (override.name, override.applies, round(override.change, 9))
        for override in result.overrides
    ] == [
        ("single_thought", False, 0.0),
        ("recovery_bonus", True, 0.1),
        ("low_diversity_penalty", True, -0.1),
    ]
