"""Whether the rules of an import say what its format leaves open."""

from kp_batch.errors import KpBatchError
from kp_batch.importers.format import Format
from kp_batch.importers.rules import Rules
from kp_batch.progress import warn

_RULES = {
    "success": '[success] with score = "NAME" and at_least = 1.0, or always = true',
    "confidence": '[confidence] with score = "NAME", min = 0 and max = 1, or always = 0.8',
}


def check_rules(form: Format, rules: Rules) -> None:
    """Refuse rules that leave open what the format does not tell, before any work.

    Raises:
        KpBatchError: tells all that they lack.
    """
    given = {"success": rules.success, "confidence": rules.confidence}
    missing = [_RULES[each] for each in given if not given[each] and each not in form.decides]
    if missing:
        raise KpBatchError(
            f"{form.name} does not tell what only you can decide; the rules lack "
            f"{'; and '.join(missing)}"
        )
    score = rules.success and rules.success.score
    if score and rules.confidence and rules.confidence.score == score:
        warn(f"the score {score!r} decides both success and confidence: it counts twice")
