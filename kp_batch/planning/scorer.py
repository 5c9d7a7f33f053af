"""The scorer of a run: its encoder, cache and profiles, and which published scores are stale.

Encoder, cache and profile have ids, which are columns of the scores.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from kp_batch.archive.ledger import FileChanges
from kp_batch.archive.validation import MESSAGES_VERSION
from kp_batch.embedding.encoder import ENCODER_VERSION
from kp_batch.embedding.encoders import load_encoder
from kp_batch.errors import KpBatchError, SettingError
from kp_batch.ingest.scan import ArchiveScan
from kp_batch.novelty.cache_settings import REPLAY_VERSION, CacheSettings
from kp_batch.runs.run import Run
from kp_batch.schemas import PROFILES, SCORES, TIMESTAMP
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.facts import FACTS_VERSION
from kp_batch.scoring.profiles import SCORING_VERSION, ProfileVersions
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.reasons import (
    OF_ENCODER,
    Reason,
    file_changes,
    formula_changes,
    setting_changes,
)
from kp_batch.warehouse.run_record import RunRecord, last_done

NO_FINGERPRINT = "none"  # encoder_id and cache_id without an encoder
# The versions that a newer kp_batch may change.
FORMULAS = {
    "facts": FACTS_VERSION,
    "encoder": ENCODER_VERSION,
    "replay": REPLAY_VERSION,
    "scoring": SCORING_VERSION,
}
MESSAGES = {"messages": MESSAGES_VERSION}  # the same, without effect on scores


def without_encoder(warehouse: Path, so_that: str) -> KpBatchError:
    """Return the error for work that needs vectors, if no encoder made any."""
    return KpBatchError(
        f"the scores in {shown(warehouse)} were computed without an encoder, so {so_that}; run the "
        "archive with an --embedder first",
        code="no_encoder",
    )


@dataclass(frozen=True)
class Scorer:
    """The encoder, the cache and the profiles of one run."""

    encoder_id: str
    cache_id: str
    profiles: ProfileVersions

    @classmethod
    def of(cls, run: Run) -> "Scorer":
        """Make the scorer of a run.

        Raises:
            EncoderError: a model's files are missing.
            SettingError: vectors cannot be restored without a model.
        """
        encoder = load_encoder(run.config.embedder, run.config.precision)
        if run.config.restore_vectors and not encoder:
            raise SettingError(
                f"the embedder of {shown(run.config.warehouse)} is {run.config.embedder}, which "
                "has no vectors to restore; leave out --restore-vectors"
            )
        return cls._with_encoder(run, encoder.encoder_id if encoder else NO_FINGERPRINT)

    @classmethod
    def as_published(cls, run: Run) -> "Scorer":
        """Make the scorer of a run with the encoder of the published scores, without its model.

        If there are no scores, it has the encoder of the settings.
        """
        last = last_done(run.snapshot.runs())
        encoder_id = next(iter(last.fingerprints["encoder_id"]), None) if last else None
        return cls._with_encoder(run, encoder_id) if encoder_id else cls.of(run)

    @classmethod
    def _with_encoder(cls, run: Run, encoder_id: str) -> "Scorer":
        cache = CacheSettings(run.config.cache_size, run.config.ttl)
        cache_id = NO_FINGERPRINT if encoder_id == NO_FINGERPRINT else cache.cache_id
        return cls(encoder_id, cache_id, run.config.profiles)

    @property
    def has_encoder(self) -> bool:
        """Whether novelty is computed from vectors."""
        return self.encoder_id != NO_FINGERPRINT

    def replay_is_stale(self) -> pl.Expr:
        """Whether a published row was replayed with another encoder or cache."""
        return (pl.col("encoder_id") != self.encoder_id) | self.cache_is_stale()

    def cache_is_stale(self) -> pl.Expr:
        """Whether it was replayed with a cache of another size or ttl, or by another version."""
        return (pl.col("cache_id") != self.cache_id).fill_null(value=False)

    def novelty_is_stale(self) -> pl.Expr:
        """Whether its novelty must be computed again, whatever its window holds."""
        stale = pl.col("encoder_id") != self.encoder_id
        if self.has_encoder:
            stale |= ~pl.col("cache_id").str.ends_with(f"-v{REPLAY_VERSION}")
        return stale.fill_null(value=False)

    def profiles_table(self) -> pl.DataFrame:
        """The table of profiles: each once, with the times from which it applies."""
        rows = [
            {
                "profile_id": version.profile.profile_id,
                **asdict(version.profile),
                "valid_from": version.valid_from,
            }
            for _, version in self.profiles.named
        ]
        *columns, times = PROFILES
        profiles = pl.DataFrame(rows, schema=PROFILES | {times: TIMESTAMP})
        return profiles.group_by(columns).agg(times).cast(PROFILES).sort("profile_id")

    def rescore(self, rows: pl.LazyFrame, run_id: str) -> pl.LazyFrame:
        """Score the rows that need it, and select the columns of `SCORES` of all rows.

        Args:
            rows: the columns of `SCORES` with current novelty, and the bools `replayed` and
                `facts_changed`.
            run_id: the id of the run that scores them.
        """
        profile, profile_id = assign(self.profiles)
        reweighted = pl.col("profile_id").ne_missing(profile_id)
        recached = pl.col("replayed") | self.cache_is_stale()
        rescored = recached | pl.col("facts_changed") | reweighted
        return (
            rows.with_columns(
                *(
                    pl.when(condition).then(pl.lit(value)).otherwise(name).alias(name)
                    for name, condition, value in (
                        ("run_id", rescored, run_id),
                        ("encoder_id", pl.col("replayed"), self.encoder_id),
                        ("cache_id", recached, self.cache_id),
                    )
                ),
                *(profile, profile_id),
                rescored=rescored,
            )
            .with_columns(
                pl.when("rescored")
                .then(composite(self.profiles.profiles))
                .otherwise("composite")
                .alias("composite")
            )
            .with_columns(pl.when("rescored").then(score()).otherwise("score").alias("score"))
            .select(list(SCORES))
        )


def is_up_to_date(run: Run, scorer: Scorer, scan: ArchiveScan, last: RunRecord | None) -> bool:
    """Whether the run has nothing to do, which is decided without reading a trace.

    The last run saw the same contents of the archive and wrote the same messages of rejects, and no
    score is stale.
    """
    forgot = run.forgets or run.has_tombstones
    has_changes = run.published.failed or forgot or scan.differs
    return not has_changes and same_messages(last) and is_current(run, scorer, last)


def is_current(run: Run, scorer: Scorer, last: RunRecord | None) -> bool:
    """Whether no published score is stale, judged by the record of the last run alone.

    That run had the same settings, and its scores have the ids that scores would get now.
    """
    return (
        last is not None
        and run.keeps_settings
        and last.fingerprints["encoder_id"].keys() <= {scorer.encoder_id}
        and last.fingerprints["cache_id"].keys() <= {scorer.cache_id}
        and last.fingerprints["profile_id"].keys()
        <= {profile.profile_id for profile in scorer.profiles.profiles}
    )


def is_as_published(run: Run, scorer: Scorer) -> bool:
    """Whether the run would score every trace as published, so that it may rescore only some."""
    last = last_done(run.snapshot.runs())
    versions = last.versions if last else FORMULAS
    return is_current(run, scorer, last) and not any(formula_changes(versions, FORMULAS))


def change_reasons(
    run: Run, scorer: Scorer, files: FileChanges, last: RunRecord | None
) -> Iterator[Reason]:
    """Find the reasons for a run; `last` is the last one that is done, None in a new warehouse.

    Returns:
        The settings that differ, then the formulas and the model's files, then the changes of the
            archive's files: `files_new` and so on, with the count as `new`.
    """
    if last is None:
        yield Reason("new_warehouse", "a new warehouse")
    else:
        settings = [*setting_changes(run.published.settings, run.config.settings)]
        yield from settings
        yield from formula_changes(last.versions, FORMULAS)
        if not same_messages(last):
            yield Reason("messages", "messages of rejects changed")
        if not OF_ENCODER & {reason.code for reason in settings}:
            yield from _model_files(scorer, last)
    if run.published.failed:
        yield Reason("after_failure", "the last run failed")
    if run.forgets:
        yield Reason("forgotten", "traces to be forgotten")
    if run.has_tombstones:
        yield Reason("forgotten_since", "traces that were forgotten since these scores")
    if run.config.restore_vectors:
        yield Reason("restore_vectors", "missing vectors to be restored")
    yield from file_changes({change: len(paths) for change, paths in asdict(files).items()})


def same_messages(last: RunRecord | None) -> bool:
    """Whether the last run had the same messages for rejects."""
    return last is not None and last.versions.items() >= MESSAGES.items()


def _model_files(scorer: Scorer, last: RunRecord) -> Iterator[Reason]:
    """Yield a reason if the model has the same name but other files than every published score."""
    published = [_without_version(encoder_id) for encoder_id in last.fingerprints["encoder_id"]]
    current = _without_version(scorer.encoder_id)
    if published and current not in published:
        words = f"files of the model {', '.join(published)} \N{RIGHTWARDS ARROW} {current}"
        yield Reason("model_files", words, published, current)


def _without_version(encoder_id: str) -> str:
    return encoder_id.rpartition("-v")[0] or encoder_id
