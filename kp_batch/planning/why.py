"""Why a run has anything to do: what differs from when the warehouse was published."""

from collections.abc import Iterator
from dataclasses import asdict

import polars as pl

from kp_batch.archive.file_changes import FileChanges
from kp_batch.embedding.encoders import ENCODER_VERSION
from kp_batch.facts import FACTS_VERSION
from kp_batch.novelty.settings import REPLAY_VERSION
from kp_batch.planning.scorer import Scorer
from kp_batch.reasons import Reason, file_changes, formula_changes, setting_changes
from kp_batch.run import Run
from kp_batch.run_record import last_done
from kp_batch.scoring.profiles import SCORING_VERSION
from kp_batch.warehouse.relations import run_records

# What another kp_batch may bring.
FORMULAS = {
    "facts": FACTS_VERSION,
    "encoder": ENCODER_VERSION,
    "replay": REPLAY_VERSION,
    "scoring": SCORING_VERSION,
}


def reasons(
    run: Run, scorer: Scorer, files: FileChanges, fingerprints: pl.DataFrame
) -> Iterator[Reason]:
    """Find what differs from what is published.

    Args:
        run: the run.
        scorer: what it scores with.
        files: what differs of the archive.
        fingerprints: what computed the published scores, see `State.fingerprints`.

    Returns:
        The settings that differ, then the formulas and the model's files, then what became of the
        archive's files: `files_new` and so on, with their numbers as `new`.
    """
    last = last_done(run_records(run.config.warehouse, run.published.tables.get("runs")))
    if last is None:
        yield Reason("new_warehouse", "a new warehouse")
    else:
        yield from setting_changes(run.published.settings, run.config.settings)
        yield from formula_changes(last.versions, FORMULAS)
        yield from _model_files(run, scorer, fingerprints)
    if run.published.failed:
        yield Reason("after_failure", "the last run failed")
    if run.forgets:
        yield Reason("forgotten", "traces to be forgotten")
    yield from file_changes({what: len(paths) for what, paths in asdict(files).items()})


def _model_files(run: Run, scorer: Scorer, fingerprints: pl.DataFrame) -> Iterator[Reason]:
    """The embedder is the same by name, and no published score was computed with its files."""
    published = fingerprints.get_column("encoder_id").unique().sort()
    known, now = ([_model(each) for each in ids] for ids in (published, [scorer.encoder_id]))
    is_same = run.published.settings["embedder"] == run.config.embedder
    if is_same and known and now[0] not in known:
        words = f"files of the model {', '.join(known)} \N{RIGHTWARDS ARROW} {now[0]}"
        yield Reason("model_files", words, known, now[0])


def _model(encoder_id: str) -> str:
    """An encoder's id without the version of the formula."""
    return encoder_id.rpartition("-v")[0] or encoder_id
