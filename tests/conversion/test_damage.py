"""Damage in one place changes no other trace, never makes a plausible one, and is counted."""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import load_rules
from tests.conversion.damaged_examples import (
    Damage,
    damage_one,
    examples,
    is_read,
    texts_of_trace,
    touched,
)
from tests.support.imports.drafting import ALWAYS, Conversion, always, converted

EXAMPLES = int(os.environ.get("KP_DAMAGE_EXAMPLES", "3"))  # of each
RULES = {"knowledgepulse": load_rules(None, {}), "messages": always(created_at="field:created_at")}


@pytest.mark.slow
@pytest.mark.telling
def test_damage_stays_where_it_is(tmp_path: Path) -> None:
    faults = list[str]()
    for name, form, example in [*examples(tmp_path / "whole")]:
        rules = RULES.get(form, ALWAYS)
        whole = converted(form, example, rules)
        for number in range(EXAMPLES):
            folder = tmp_path / name / str(number)
            damage = damage_one(example, folder, Random(f"{name} {number}"))
            ids = {FORMATS[form].id_of(trace) for trace in touched(form, example, damage)}
            made = converted(form, folder, rules)
            wrong = wrong_in(made, whole, ids, damage)
            is_silent = damage.breaks and not refusals(made) - refusals(whole)
            if is_silent and is_read(form, example, damage):
                wrong.append("nothing was counted")
            faults += [f"{name}, {number}: {damage}: {each}" for each in wrong]
    assert not faults, "\n".join(faults)


def wrong_in(made: Conversion, whole: Conversion, ids: set[str], damage: Damage) -> list[str]:
    """What is not as it has to be, in words."""
    wrong = [
        f"{id_} is another, or gone"
        for id_, row in whole.rows.items()
        if id_ not in ids and made.rows.get(id_) != row
    ]
    before = [text for id_ in ids & whole.rows.keys() for text in texts_of_trace(whole.rows[id_])]
    for id_, row in made.rows.items():
        if id_ in ids and damage.way in ("drop", "cut"):
            new = (x for x in texts_of_trace(row) if not any(x in text for text in before))
            wrong += [f"{id_} has {text!r}" for text in new]
        if damage.cut and damage.cut in texts_of_trace(row):
            wrong.append(f"{id_} has what was cut: {damage.cut!r}")
    return wrong


def refusals(made: Conversion) -> Counter[tuple[object, ...]]:
    return Counter((*each.reasons, each.id, each.line) for _, each in made.refused)
