"""What a person should notice, in sentences."""

from kp_batch.report.report_data import Figures
from kp_batch.report.run_findings import of_runs
from kp_batch.report.score_findings import of_scores
from kp_batch.report.sentences import Finding


def findings(figures: Figures) -> list[Finding]:
    """All that is worth a sentence, warnings first."""
    told = [*of_scores(figures), *of_runs(figures)]
    return sorted(told, key=lambda finding: not finding.is_warning)
