"""The Prefect flows of a night, for a deployment or for your own flow."""

from dataclasses import asdict
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from kp_batch.config import RescoreConfig
from kp_batch.errors import SettingError
from kp_batch.flows.tasks import (
    FLOW,
    logged_to_prefect,
    recorded_in_flow,
    rescore_in_tasks,
    silence_at_exit,
)
from kp_batch.imports.import_config import ImportConfig, imports_of, read_imports
from kp_batch.imports.summary import as_text
from kp_batch.log import info
from kp_batch.steps.step import retried, timed

__all__ = ["import_and_rescore", "rescore"]


@flow(**FLOW)
def rescore(config: RescoreConfig) -> dict[str, Any]:
    """Rescore an archive: every trace gets the score it had at its own time.

    Args:
        config: the settings of the run.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: the run failed and published no scores.
    """
    silence_at_exit()
    return asdict(rescore_in_tasks(config))


@flow(**(FLOW | {"name": "import-and-rescore"}))
def import_and_rescore(
    config: RescoreConfig, imports: list[ImportConfig] | None = None
) -> dict[str, Any]:
    """Import new traces of other systems, then rescore.

    Args:
        config: the settings of the run, whose archive includes those of the imports. A preview is
            not possible, since an import changes the archive.
        imports: an import for each archive, in order; by default, those of the config's project.

    Returns:
        The run's summary.

    Raises:
        KpBatchError: a setting has a fault, and nothing was done; an import failed, and nothing
            more was done; or the run failed.
    """
    silence_at_exit()
    with timed(), recorded_in_flow(config):  # the run's seconds include the imports
        with logged_to_prefect():
            # All settings first: their faults are reported before any work.
            config = RescoreConfig.read(config)
            _refuse_preview(config)
            entries = imports if imports is not None else imports_of(config.project)
            for source in read_imports(entries):
                import_new(source)
        return asdict(rescore_in_tasks(config))


@task(name="import", cache_policy=NO_CACHE, persist_result=False)
def import_new(settings: ImportConfig) -> None:
    """Import, and retry if the disk or the network fails; see `retried`."""
    imported = retried(f"import into {settings.archive}", settings.run)
    info(as_text(imported, settings.archive))


def _refuse_preview(config: RescoreConfig) -> None:
    if config.preview:
        raise SettingError(
            "a preview must change nothing, but this flow imports into the archive; preview with "
            "the flow rescore, or leave out preview"
        )
