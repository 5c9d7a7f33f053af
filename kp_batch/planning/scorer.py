"""What computes scores: encoder, cache, profiles. Each has an id that the rows bear."""

from dataclasses import asdict, dataclass

import polars as pl

from kp_batch.embedding.encoders import load_encoder
from kp_batch.novelty.settings import REPLAY_VERSION, CacheSettings
from kp_batch.runs.record import last_done
from kp_batch.runs.run import Run
from kp_batch.schemas import PROFILES, SCORES, TIMESTAMP
from kp_batch.scoring.composite import assign, composite, score
from kp_batch.scoring.profiles import ProfileVersions

NO_FINGERPRINT = "none"  # stands for encoder_id and cache_id where there is no encoder


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
        """
        encoder = load_encoder(run.config.embedder, run.config.precision)
        return cls._with(run, encoder.encoder_id if encoder else NO_FINGERPRINT)

    @classmethod
    def as_published(cls, run: Run) -> "Scorer":
        """Make the scorer of a run that takes the encoder as the scores have it, without a model.

        Where there is no score, it is that of the settings.
        """
        last = last_done(run.snapshot.runs())
        borne = next(iter(last.fingerprints["encoder_id"]), None) if last else None
        return cls._with(run, borne) if borne else cls.of(run)

    @classmethod
    def _with(cls, run: Run, encoder_id: str) -> "Scorer":
        cache = CacheSettings(run.config.cache_size, run.config.ttl)
        cache_id = NO_FINGERPRINT if encoder_id == NO_FINGERPRINT else cache.cache_id
        return cls(encoder_id, cache_id, run.config.profiles)

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
        other_encoder = pl.col("encoder_id") != self.encoder_id
        if not self.has_encoder:
            return other_encoder
        return other_encoder | ~pl.col("cache_id").str.ends_with(f"-v{REPLAY_VERSION}")

    def profile_id(self) -> pl.Expr:
        """The profile_id that a row takes; see `assign`."""
        return assign(self.profiles)[1]

    def profiles_table(self) -> pl.DataFrame:
        """The table of profiles: each once, with the times from which it holds."""
        rows = [
            {
                "profile_id": each.profile.profile_id,
                **asdict(each.profile),
                "valid_from": each.valid_from,
            }
            for versions in self.profiles.versions.values()
            for each in versions
        ]
        *columns, dates = PROFILES
        dated = pl.DataFrame(rows, schema=PROFILES | {dates: TIMESTAMP})
        return dated.group_by(columns).agg(dates).cast(PROFILES).sort("profile_id")

    def rescore(self, rows: pl.LazyFrame, run_id: str) -> pl.LazyFrame:
        """Score the rows that need it, and give all of them the columns of `SCORES`.

        Args:
            rows: the columns of `SCORES`, the novelty among them up to date, and the bools
                `replayed` and `facts_changed`.
            run_id: of the run that scores them.
        """
        profile, profile_id = assign(self.profiles)
        reweighted = pl.col("profile_id").ne_missing(profile_id)
        recached = pl.col("replayed") | self.cache_is_stale().fill_null(value=False)
        rescored = recached | pl.col("facts_changed") | reweighted
        return (
            rows.with_columns(
                *(
                    pl.when(which).then(pl.lit(value)).otherwise(name).alias(name)
                    for name, which, value in (
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
