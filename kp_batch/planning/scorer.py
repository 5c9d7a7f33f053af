"""What computes scores: encoder, cache, profiles. Each has an id that the rows bear."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from kp_batch.contracts import SCORES
from kp_batch.embedding.encoders import load_encoder
from kp_batch.novelty.settings import REPLAY_VERSION, CacheSettings
from kp_batch.run import Run
from kp_batch.run_record import done_runs, last_encoder
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import WeightProfile
from kp_batch.warehouse.relations import run_records, scan

NO_FINGERPRINT = "none"  # stands for encoder_id and cache_id where there is no encoder


@dataclass(frozen=True)
class Scorer:
    """The encoder, the cache and the profiles of one run."""

    encoder_id: str
    cache_id: str
    profiles: Mapping[str, WeightProfile]  # by name
    earlier: tuple[WeightProfile, ...]  # that published rows may bear
    registered: tuple[str, ...]  # ids that stay in the table, even where no row bears them

    @classmethod
    def of(cls, run: Run) -> "Scorer":
        """Make the scorer of a run.

        Raises:
            EncoderError: a model's files are missing.
        """
        encoder = load_encoder(run.config.embedder, run.config.precision)
        return cls._with(run, encoder.encoder_id if encoder else NO_FINGERPRINT)

    @classmethod
    def as_published(cls, run: Run) -> "Scorer":
        """Make the scorer of a run that takes the encoder as the warehouse has it, without a model.

        It is the encoder that scored last, see `last_encoder`; where there is no score, that of the
        settings.
        """
        runs = run_records(run.config.warehouse, run.published.tables.get("runs"))
        encoder_id = last_encoder(done_runs(runs))
        return cls._with(run, encoder_id) if encoder_id else cls.of(run)

    @classmethod
    def _with(cls, run: Run, encoder_id: str) -> "Scorer":
        config = run.config
        published = scan(config.warehouse, "profiles", run.tables.get("profiles")).collect()
        cache = CacheSettings(config.cache_size, config.ttl)
        rows = published.sort("profile_id").drop("profile_id").iter_rows(named=True)
        return cls(
            encoder_id=encoder_id,
            cache_id=NO_FINGERPRINT if encoder_id == NO_FINGERPRINT else cache.cache_id,
            profiles=config.profiles,
            earlier=tuple(WeightProfile(**row) for row in rows),
            registered=tuple(each.profile_id for each in config.profiles.values()),
        )

    @property
    def has_encoder(self) -> bool:
        """Whether novelty comes from vectors."""
        return self.encoder_id != NO_FINGERPRINT

    def replay_is_stale(self) -> pl.Expr:
        """Whether a published row was replayed with another encoder or cache than the run's."""
        return (pl.col("encoder_id") != self.encoder_id) | self.cache_is_stale()

    def cache_is_stale(self) -> pl.Expr:
        """Whether that was with another cache: of another size or ttl, or an older version."""
        return pl.col("cache_id") != self.cache_id

    def novelty_is_stale(self) -> pl.Expr:
        """Whether its novelty is another one now, whatever traces its window holds."""
        older = ~pl.col("cache_id").str.ends_with(f"-v{REPLAY_VERSION}")
        return (pl.col("encoder_id") != self.encoder_id) | older

    def profile_is_stale(self) -> pl.Expr:
        """Whether a published row was weighted by another profile than its domain has now."""
        return pl.col("profile_id") != assign(self.profiles)[1]

    def profile_after(self) -> pl.Expr:
        """The profile_id that a row bears after the run; takes the columns of `rescore`."""
        current = pl.when(self._takes_profile_anew()).then(assign(self.profiles)[1])
        return current.otherwise("profile_id").alias("profile_id")

    def rescore(self, rows: pl.LazyFrame, run_id: str) -> pl.LazyFrame:
        """Score the rows that need it, and give all of them the columns of `SCORES`.

        Args:
            rows: the columns of `SCORES`, the novelty among them up to date, and the bools
                `replayed`, `facts_changed`, `content_changed` (that its score comes from) and
                `in_range` (the day may take another profile).
            run_id: of the run that scores them.
        """
        profile, profile_id = assign(self.profiles)
        anew = self._takes_profile_anew()
        reweighted = anew & pl.col("profile_id").ne_missing(profile_id)
        recached = pl.col("in_range") & self.cache_is_stale().fill_null(value=False)
        recached = recached | pl.col("replayed")
        rescored = recached | pl.col("facts_changed") | reweighted
        return (
            rows.with_columns(
                *(
                    pl.when(which).then(value).otherwise(name).alias(name)
                    for name, which, value in (
                        ("run_id", rescored, pl.lit(run_id)),
                        ("encoder_id", pl.col("replayed"), pl.lit(self.encoder_id)),
                        ("cache_id", recached, pl.lit(self.cache_id)),
                        ("profile", anew, profile),
                        ("profile_id", anew, profile_id),
                    )
                ),
                rescored=rescored,
            )
            .with_columns(pl.when("rescored").then(composite(self._known)).otherwise("composite"))
            .with_columns(pl.when("rescored").then(score()).otherwise("score").alias("score"))
            .select(list(SCORES))
        )

    @property
    def _known(self) -> list[WeightProfile]:
        return [*self.earlier, *self.profiles.values()]

    def _takes_profile_anew(self) -> pl.Expr:
        """Whether a row takes the profile that its domain has now; otherwise it keeps its own."""
        known = [each.profile_id for each in self._known]
        older = ~pl.col("profile_id").is_in(known)  # of an older version of the formula
        rescored = pl.col("replayed") | pl.col("facts_changed")
        return pl.col("content_changed") | pl.col("in_range") | (rescored & older)
