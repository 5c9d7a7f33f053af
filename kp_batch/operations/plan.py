"""Tells what a run would do, and why; changes nothing."""

from datetime import UTC, datetime

from kp_batch.config import RescoreConfig
from kp_batch.ingest.scan import scan_archive
from kp_batch.pipeline.audit import check_audits
from kp_batch.planning.explain_plan import PlanDescription, describe
from kp_batch.planning.plan import make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.runs.run import Run, effective_config
from kp_batch.runs.staging import Staging
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.layout import check_apart, check_folder


def plan(config: RescoreConfig, *, by_domain_and_day: bool = False) -> PlanDescription:
    """Plan a run, and leave nothing behind.

    Args:
        config: of the run; what it leaves out is as the warehouse has it.
        by_domain_and_day: see `describe`.

    Raises:
        KpBatchError: there is no such archive, say, or no encoder.
    """
    check_folder(config.warehouse)
    check_apart(config.warehouse, config.archive)
    with Staging.temporary() as staging:
        run = Run.begin(effective_config(config), datetime.now(UTC), staging)
        scorer = Scorer.of(run)
        check_audits(run)
        made = make_plan(run, scan_archive(run, ThreadExecutor()), scorer)
        return describe(run, made, by_domain_and_day=by_domain_and_day)
