"""The findings of a scope: at most five sentences, the most important first.

Each compares like with like, or says that it does not. Each names the question whose answer has its
numbers. A sentence whose numbers may be chance is not shown.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from kp_batch.report.data import ReportData
from kp_batch.report.finding import Finding
from kp_batch.report.kinds import composition, novelty, outcomes, trends, units

_MOST = 5
_NEWS = ("mean_change", "domain_moved")  # news to a reader of yesterday's page
# Findings of one kind share a topic: the heaviest of each kind precedes a second of any kind.
KINDS: tuple[tuple[Callable[[ReportData, str], Iterable[Finding]], ...], ...] = (
    (trends.mean_change, trends.domain_moved),
    (composition.driver, composition.override, novelty.warming_up, novelty.near_repeats),
    (units.ranking, units.paired),
    (outcomes.confidence,),
    (outcomes.success,),
)


def findings(data: ReportData, scope: str) -> list[Finding]:
    """Return the findings of a scope: the heaviest of each kind, then the next ones; changes first.

    All domains together have the findings of each domain. Domains that share a label have none,
    because no question covers them together.
    """
    if scope == data.others or not data.labels:
        return []
    kinds = [_heaviest(chain(*(find(data, scope) for find in kind))) for kind in KINDS]
    chosen = [found[0] for found in kinds if found]
    rest = _heaviest(chain(*(found[1:] for found in kinds)))
    selected = _heaviest((_heaviest(chosen) + rest)[:_MOST])
    return sorted(selected, key=lambda finding: finding.code not in _NEWS)


def _heaviest(found: Iterable[Finding]) -> list[Finding]:
    """Sort findings by weight, and keep the heaviest of each code."""
    codes: dict[str, Finding] = {}
    for each in sorted(found, key=lambda finding: (-finding.weight, finding.sentence)):
        codes.setdefault(each.code, each)
    return list(codes.values())
