import math
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.dimensions import DIMENSIONS, OVERRIDES
from kp_batch.scoring.composite import breakdowns, composite, score
from tests.support.profiles import undated

PROFILES = undated()
share = st.floats(0, 1)
rows = st.fixed_dictionaries(
    {
        **dict.fromkeys(DIMENSIONS, share),
        **dict.fromkeys(OVERRIDES, st.booleans()),
        "profile_id": st.sampled_from([each.profile_id for each in PROFILES.values()]),
    }
)


@given(st.lists(rows, min_size=1, max_size=5))
def test_law_a_breakdown_ends_with_the_score_and_its_parts_sum_to_it(
    given_rows: list[dict[str, Any]],
) -> None:
    frame = pl.DataFrame(given_rows)
    told = breakdowns(frame, PROFILES.values())
    scored = frame.with_columns(composite(PROFILES.values())).with_columns(score())
    assert [each.score for each in told] == scored["score"].to_list()
    assert [each.composite for each in told] == scored["composite"].to_list()
    for each in told:
        first, second, third, fourth = (term.product for term in each.terms)
        assert first + second + third + fourth == each.composite
        total = each.composite + sum(override.change for override in each.overrides)
        assert math.isclose(total, each.score, abs_tol=1e-15)
        assert all(override.applies or not override.change for override in each.overrides)


def test_a_breakdown_names_the_profile_its_weights_and_each_override() -> None:
    row = {
        **dict(zip(DIMENSIONS, (0.5, 1.0, 0.25, 0.8), strict=True)),
        **dict(zip(OVERRIDES, (False, True, True), strict=True)),
        "profile_id": PROFILES["default"].profile_id,
    }
    [told] = breakdowns(pl.DataFrame([row]), PROFILES.values())
    assert (told.profile, told.profile_id) == ("default", PROFILES["default"].profile_id)
    assert [(term.dimension, term.value, term.weight) for term in told.terms] == [
        (name, row[name], getattr(PROFILES["default"], name)) for name in DIMENSIONS
    ]
    assert [
        (override.name, override.applies, round(override.change, 9)) for override in told.overrides
    ] == [
        ("single_thought", False, 0.0),
        ("recovery_bonus", True, 0.1),
        ("low_diversity_penalty", True, -0.1),
    ]
