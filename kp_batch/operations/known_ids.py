"""Look up ids of traces in a warehouse, before these are forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kp_batch.scoring.facts import id_hash
from kp_batch.text import shortened, some_of, unknown_of
from kp_batch.warehouse.layout import Layout
from kp_batch.warehouse.snapshot import PublishedSnapshot, kept_candidate
from kp_batch.warehouse.unneeded import manifests_of_runs

_NAMED = 3
_LETTERS = 80  # of an id that is shown


@dataclass(frozen=True)
class KnownIds:
    """Distinct ids by what is known of them; the frames have the column `trace_id`."""

    seen: pl.DataFrame  # ids of any row that was ever read
    unseen: pl.DataFrame
    forgotten: int  # how many others were forgotten before
    traces: int  # that are scored
    rows: int  # that are rejected
    replaced: int  # ids that only replaced or not yet scored content has
    unseen_named: str  # a few of the unseen ones, with known ids that contain them

    @property
    def going(self) -> pl.DataFrame:
        """The ids that are forgotten now."""
        return pl.concat([self.seen, self.unseen])

    @property
    def refusal(self) -> str:
        """A message about ids that were never seen, and what to do; empty if there are none."""
        if not len(self.unseen):
            return ""
        ids = len(self.seen) + len(self.unseen) + self.forgotten
        unknown = unknown_of(self.unseen_named, len(self.unseen), ids, "id")
        return f"{unknown}; with --unseen-too, later runs leave out such ids, too"


def known_ids(snapshot: PublishedSnapshot, ids: Sequence[str]) -> KnownIds:
    """Look up ids in what is published, and in the facts of a candidate and of kept runs.

    Duplicates count once.
    """
    is_kept = Layout(snapshot.warehouse).kept_candidate.exists()
    seen_by = kept_candidate(snapshot.warehouse) if is_kept else snapshot

    def sought_in(rows: pl.LazyFrame, sought: pl.DataFrame) -> pl.DataFrame:
        ids = rows.select("trace_id").join(sought.lazy(), on="trace_id", how="semi")
        return ids.collect(engine="streaming")

    unhashed = pl.DataFrame({"trace_id": ids}, schema={"trace_id": pl.String})
    distinct = unhashed.unique(maintain_order=True).with_columns(id_hash=id_hash())
    forgotten = snapshot.scan("forgotten").collect()
    new = distinct.join(forgotten, on="id_hash", how="anti", maintain_order="left").drop("id_hash")
    scores, rejects = (sought_in(snapshot.scan(name), new) for name in ("scores", "rejects"))
    facts = [seen_by.scan("facts")]
    if others := facts_of_others(snapshot):
        facts.append(pl.scan_parquet(others, glob=False))
    current = pl.concat([scores, rejects]).unique()
    known = pl.concat([current, *(sought_in(rows, new) for rows in facts)])
    seen, unseen = (
        new.join(known, on="trace_id", how=how, maintain_order="left") for how in ("semi", "anti")
    )
    return KnownIds(
        seen=seen,
        unseen=unseen,
        forgotten=len(distinct) - len(new),
        traces=len(scores),
        rows=len(rejects),
        replaced=len(seen) - len(current),
        unseen_named=_named_ids(seen_by, unseen),
    )


def facts_of_others(snapshot: PublishedSnapshot) -> list[Path]:
    """Return the files of facts that only kept runs have, such as those that were rolled back."""
    kept = manifests_of_runs(snapshot, snapshot.runs(), snapshot.manifest.kept_from)
    states = (PublishedSnapshot(snapshot.warehouse, manifest) for manifest in kept)
    paths = {path for state in states for path in state.files("facts")}
    return sorted(paths - {*snapshot.files("facts")})


def _named_ids(snapshot: PublishedSnapshot, unseen: pl.DataFrame) -> str:
    """Name a few unknown ids, each with the known ones that contain it."""
    ids = unseen.head(_NAMED).get_column("trace_id").to_list()
    if not ids:
        return ""
    containing = [pl.col("trace_id").str.contains(unknown, literal=True) for unknown in ids]
    rows = snapshot.scan("facts").select("trace_id").filter(pl.any_horizontal(containing))
    known = rows.unique().collect(engine="streaming")
    return some_of(map(_with_suggestion, ids, map(known.filter, containing)), len(unseen))


def _with_suggestion(unknown: str, known: pl.DataFrame) -> str:
    shown = shortened(unknown, _LETTERS)
    if not len(known):
        return shown
    first = shortened(known.get_column("trace_id").sort().item(0), _LETTERS)
    if len(known) == 1:
        return f"{shown} (did you mean {first}?)"
    return f"{shown} (part of {len(known):,} ids, such as {first})"
