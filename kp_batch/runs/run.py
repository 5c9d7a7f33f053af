"""One run: its settings, its name and start, the tables published then, its working files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from kp_batch.archive.sources import in_full
from kp_batch.config import RescoreConfig
from kp_batch.errors import WarehouseError
from kp_batch.text import printable
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.candidate import Candidate
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.manifest import Manifest, check_manifest, read_manifest
from kp_batch.warehouse.reasons import complete
from kp_batch.warehouse.run_record import last_done
from kp_batch.warehouse.snapshot import PublishedSnapshot, published
from kp_batch.warehouse.staging import Staging


@dataclass(frozen=True)
class Run:
    """What is known of a run when it begins; its work is in its plan."""

    config: RescoreConfig
    run_id: str
    started_at: datetime
    published: Manifest  # as published when it began
    candidate: Candidate  # the tables that it builds upon, with its changes
    staging: Staging
    is_temporary: bool = False  # whether its warehouse is removed at the end

    @classmethod
    def begin(
        cls,
        config: RescoreConfig,
        now: datetime,
        staging: Staging | None = None,
        *,
        is_temporary: bool = False,
    ) -> "Run":
        """Begin a new run, named by its start.

        Args:
            config: its settings, complete.
            now: the time, in UTC.
            staging: its working files; by default inside the warehouse, on its disk.
            is_temporary: whether its warehouse is removed at the end.
        """
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}"
        published = read_manifest(config.warehouse) or Manifest({}, {})
        staging = staging or Staging(Layout(config.warehouse).staging(run_id))
        candidate = Candidate(config.warehouse, published, run_id)
        return cls(config, run_id, now, published, candidate, staging, is_temporary)

    @cached_property
    def snapshot(self) -> PublishedSnapshot:
        """The tables that it builds upon, with its changes."""
        return self.candidate.snapshot(self.published.settings, failed=self.published.failed)

    @property
    def forgets(self) -> bool:
        """Whether it forgets traces; their ids are staged."""
        return self.staging.to_forget.exists()

    @property
    def has_tombstones(self) -> bool:
        """Whether published scores were replayed with traces that have been forgotten."""
        return bool(self.snapshot.files("tombstones"))

    @property
    def keeps_settings(self) -> bool:
        """Whether its settings are the published ones."""
        return self.config.settings == complete(self.published.settings)

    @property
    def regroups(self) -> bool:
        """Whether traces share caches differently than in the published scores."""
        return self.config.settings["cache_by"] != self.published.settings.get("cache_by")

    @property
    def command(self) -> str:
        """The command that runs its archive into its warehouse again."""
        archive, warehouse = map(quote, self.config.archive), shown(self.config.warehouse)
        return f"kp-batch run {' '.join(archive)} --warehouse {quote(warehouse)}"

    @property
    def where_rejects_are(self) -> str:
        """Where a user finds all rejected rows and files, in words."""
        if self.is_temporary:
            return "`rejects` lists all of them"
        return f"a run lists all of them: {self.rejects_command}"

    @property
    def rejects_command(self) -> str:
        """The command that shows the rejected rows and files."""
        return f"kp-batch sql 'FROM rejects' --warehouse {quote(shown(self.config.warehouse))}"


def effective_config(config: RescoreConfig) -> RescoreConfig:
    """Return the config with the settings and archive of the warehouse, unless a project has them.

    Raises:
        WarehouseError: it is another warehouse, what is published cannot be read, or no archive is
            given and no run is done.
    """
    manifest = read_manifest(config.warehouse)
    check_manifest(manifest, config.warehouse, config.warehouse_id)
    return _with_archive(config).with_defaults(manifest.settings if manifest else {})


def _with_archive(config: RescoreConfig) -> RescoreConfig:
    """Return the config with an archive: the given one, the last run's, or the project's.

    The project's own warehouse ignores the last run's. The project's exclusions apply if the
    archive is the project's.
    """
    project = config.project.values if config.project else {}
    own = tuple(project.get("archive", ()))
    is_own = config.project is not None and config.project.is_of(shown(config.warehouse))
    is_asked = not config.archive and read_manifest(config.warehouse) is not None
    last = last_archive(published(config.warehouse)) if is_asked else ()
    archive = config.archive or (() if is_own else last) or own
    if not archive:
        raise WarehouseError(_no_archive(config, last), code="no_archive")
    found: dict[str, Any] = {"archive": archive}
    if "exclude" not in config.model_fields_set and {*map(in_full, archive)} <= {
        *map(in_full, own)
    }:
        found["exclude"] = tuple(project.get("exclude", ()))
    return config.model_copy(update=found)


def _no_archive(config: RescoreConfig, last: Sequence[str]) -> str:
    """Return the error if no archive is given; it may name the last run's."""
    if config.project:
        line = f"archive = {json.dumps([*last] or ['ARCHIVE'], ensure_ascii=False)}"
        was = " (that of the last run)" if last else ""
        return (
            f"no archive is given: {config.project.name} names none; add a line before its "
            f"tables: {printable(line)}{was}"
        )
    return (
        f"no archive is given, and no earlier run of {shown(config.warehouse)} is done that had "
        "one; name it: kp-batch run ARCHIVE"
    )


def last_archive(snapshot: PublishedSnapshot) -> tuple[str, ...]:
    """Return the archive of the last run that is done; empty without one."""
    last = last_done(snapshot.runs())
    return tuple(last.config["archive"]) if last else ()


def nothing_scored(warehouse: Path) -> WarehouseError:
    """Return the error about a warehouse that has no scores."""
    message = f"no trace is scored in {shown(warehouse)}; run an archive first"
    return WarehouseError(message, code="nothing_scored")


def last_config(warehouse: Path, note: str | None = None) -> RescoreConfig:
    """Return the settings of the last run that is done, with a note for another run.

    Raises:
        WarehouseError: it is not a warehouse, or no run is done.
    """
    last = last_done(published(warehouse).runs())
    if last is None:
        raise nothing_scored(warehouse)
    required = {"archive": last.config["archive"], "warehouse": str(warehouse), "note": note}
    return effective_config(RescoreConfig.model_validate(required))
