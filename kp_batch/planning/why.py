"""Whether a run has anything to do, and why: what differs from when the warehouse was published."""

from collections.abc import Iterator
from dataclasses import asdict

from kp_batch.archive.ledger import FileChanges
from kp_batch.archive.validation import MESSAGES_VERSION
from kp_batch.embedding.encoders import ENCODER_VERSION
from kp_batch.facts import FACTS_VERSION
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.novelty.settings import REPLAY_VERSION
from kp_batch.planning.scorer import Scorer
from kp_batch.runs.reasons import OF_ENCODER, Reason, file_changes, formula_changes, setting_changes
from kp_batch.runs.record import RunRecord, last_done
from kp_batch.runs.run import Run
from kp_batch.scoring.profiles import SCORING_VERSION

# What another kp_batch may bring.
FORMULAS = {
    "facts": FACTS_VERSION,
    "encoder": ENCODER_VERSION,
    "replay": REPLAY_VERSION,
    "scoring": SCORING_VERSION,
}
WORDS = {"messages": MESSAGES_VERSION}  # likewise, of no score


def is_settled(run: Run, scorer: Scorer, scan: ArchiveScan, last: RunRecord | None) -> bool:
    """Whether the last run left everything as this one would, so that no trace is looked at.

    It planned from the same contents of the archive and told the rejects in the same words, and no
    score is stale.

    Args:
        run: the run.
        scorer: what it scores with.
        scan: the archive as it is now.
        last: the last run that is done.
    """
    is_open = run.published.failed or run.forgets or scan.differs
    return not is_open and words_stand(last) and is_current(run, scorer, last)


def is_current(run: Run, scorer: Scorer, last: RunRecord | None) -> bool:
    """Whether no published score is stale, as the last run tells without a look at the scores.

    It was given the same settings, and the scores that it left bear ids that scores get now.

    Args:
        run: the run.
        scorer: what it scores with.
        last: the last run that is done.
    """
    return (
        last is not None
        and run.keeps_settings
        and last.fingerprints["encoder_id"].keys() <= {scorer.encoder_id}
        and last.fingerprints["cache_id"].keys() <= {scorer.cache_id}
        and last.fingerprints["profile_id"].keys()
        <= {each.profile_id for each in scorer.profiles.profiles}
    )


def is_as_published(run: Run, scorer: Scorer) -> bool:
    """Whether the run would score every trace as it is published: then it may score some anew."""
    last = last_done(run.snapshot.runs())
    versions = last.versions if last else FORMULAS
    return is_current(run, scorer, last) and not any(formula_changes(versions, FORMULAS))


def reasons(
    run: Run, scorer: Scorer, files: FileChanges, last: RunRecord | None
) -> Iterator[Reason]:
    """Find what differs from what is published.

    Args:
        run: the run.
        scorer: what it scores with.
        files: what differs of the archive.
        last: the last run that is done; None in a new warehouse.

    Returns:
        The settings that differ, then the formulas and the model's files, then what became of the
        archive's files: `files_new` and so on, with their numbers as `new`.
    """
    if last is None:
        yield Reason("new_warehouse", "a new warehouse")
    else:
        settings = [*setting_changes(run.published.settings, run.config.settings)]
        yield from settings
        yield from formula_changes(last.versions, FORMULAS)
        if not words_stand(last):
            yield Reason("messages", "the rejects are told in other words")
        if not OF_ENCODER & {each.code for each in settings}:
            yield from _model_files(scorer, last)
    if run.published.failed:
        yield Reason("after_failure", "the last run failed")
    if run.forgets:
        yield Reason("forgotten", "traces to be forgotten")
    yield from file_changes({what: len(paths) for what, paths in asdict(files).items()})


def words_stand(last: RunRecord | None) -> bool:
    """Whether the last run told why rows are rejected as this one would."""
    return last is not None and last.versions.items() >= WORDS.items()


def _model_files(scorer: Scorer, last: RunRecord) -> Iterator[Reason]:
    """No published score was computed with the files of the encoder, which is the same by name."""
    known, now = (
        [_model(each) for each in ids]
        for ids in (last.fingerprints["encoder_id"], [scorer.encoder_id])
    )
    if known and now[0] not in known:
        words = f"files of the model {', '.join(known)} \N{RIGHTWARDS ARROW} {now[0]}"
        yield Reason("model_files", words, known, now[0])


def _model(encoder_id: str) -> str:
    """An encoder's id without the version of the formula."""
    return encoder_id.rpartition("-v")[0] or encoder_id
