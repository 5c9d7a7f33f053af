"""What the scores of a scope tell: at most five sentences, those that matter most first.

Each compares like with like, or says that it does not; and each names the question whose answer
has its numbers. A sentence whose numbers chance alone explains is not said.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from kp_batch.report.data import ReportData
from kp_batch.report.finding import Finding
from kp_batch.report.kinds import composition, novelty, outcomes, trends, units

_MOST = 5
_NEWS = ("mean_change", "domain_moved")  # what a reader of yesterday's page does not know
# Findings of one kind tell of one thing: of each the heaviest comes before a second of any.
KINDS: tuple[tuple[Callable[[ReportData, str], Iterable[Finding]], ...], ...] = (
    (trends.mean_change, trends.domain_moved),
    (composition.driver, composition.override, novelty.warming_up, novelty.near_repeats),
    (units.ranking, units.paired),
    (outcomes.confidence,),
    (outcomes.success,),
)


def findings(data: ReportData, scope: str) -> list[Finding]:
    """The findings of a scope: of each kind the heaviest, then the next ones; what changed first.

    What all domains together tell is what their domains tell, where one matters most. Of the
    domains that share a label nothing is said, as no question knows them together.
    """
    if scope == data.others or not data.labels:
        return []
    kinds = [_heaviest(chain(*(find(data, scope) for find in kind))) for kind in KINDS]
    chosen = [found[0] for found in kinds if found]
    rest = _heaviest(chain(*(found[1:] for found in kinds)))
    told = _heaviest((_heaviest(chosen) + rest)[:_MOST])
    return sorted(told, key=lambda finding: finding.code not in _NEWS)


def _heaviest(found: Iterable[Finding]) -> list[Finding]:
    """Those of most weight first, and of each code the heaviest alone."""
    codes: dict[str, Finding] = {}
    for each in sorted(found, key=lambda finding: (-finding.weight, finding.sentence)):
        codes.setdefault(each.code, each)
    return list(codes.values())
