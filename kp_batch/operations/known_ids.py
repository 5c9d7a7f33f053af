"""What a warehouse knows of some ids, so that a mistyped one is told from one to be forgotten."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kp_batch.facts import id_hash
from kp_batch.text import are, number, shortened
from kp_batch.warehouse.manifest import Manifest
from kp_batch.warehouse.snapshot import PublishedSnapshot

_NAMED = 3
_LETTERS = 80  # of an id that is shown


@dataclass(frozen=True)
class KnownIds:
    """Ids, each once, sorted by what is known of them; frames of `trace_id`."""

    seen: pl.DataFrame  # those of any row that was ever read
    unseen: pl.DataFrame
    forgotten: int  # how many others were forgotten before
    traces: int  # that are scored
    rows: int  # that are rejected
    replaced: int  # ids that stand only in content which counts no more
    unseen_named: str  # a few of the unseen ones, and which ones may be meant

    @property
    def refusal(self) -> str:
        """Which ids were never seen, and what to do about that, in words; empty: none."""
        if not len(self.unseen):
            return ""
        given = number(len(self.seen) + len(self.unseen) + self.forgotten, "id")
        return (
            f"{len(self.unseen):,} of {given} {are(len(self.unseen))} unknown: "
            f"{self.unseen_named}; nothing was changed; --unseen-too also keeps out of later runs "
            "what was never seen"
        )


def known_ids(warehouse: Path, published: Manifest, ids: Sequence[str]) -> KnownIds:
    """Look ids up in what is published, and read nothing else.

    Args:
        warehouse: the folder of the tables.
        published: what is published there.
        ids: in any number; those given twice count once.
    """

    def having(name: str, sought: pl.DataFrame) -> pl.DataFrame:
        """The ids of a table's rows that are sought, as often as they stand there."""
        rows = snapshot.scan(name).select("trace_id")
        found = rows.join(sought.lazy(), on="trace_id", how="semi")
        return found.collect(engine="streaming")

    snapshot = PublishedSnapshot(warehouse, published.tables)
    sought = pl.DataFrame({"trace_id": ids}, schema={"trace_id": pl.String})
    given = sought.unique(maintain_order=True).with_columns(id_hash=id_hash())
    forgotten = snapshot.scan("forgotten").collect()
    new = given.join(forgotten, on="id_hash", how="anti", maintain_order="left").drop("id_hash")
    scores, rejects, facts = (having(name, new) for name in ("scores", "rejects", "facts"))
    counting = pl.concat([scores, rejects]).unique()
    found = pl.concat([counting, facts])
    seen, unseen = (
        new.join(found, on="trace_id", how=how, maintain_order="left") for how in ("semi", "anti")
    )
    return KnownIds(
        seen=seen,
        unseen=unseen,
        forgotten=len(given) - len(new),
        traces=len(scores),
        rows=len(rejects),
        replaced=len(seen) - len(counting),
        unseen_named=_named(snapshot, unseen),
    )


def _named(snapshot: PublishedSnapshot, unseen: pl.DataFrame) -> str:
    """Name a few ids that are unknown, each with the known ones that it is a part of."""
    named = unseen.head(_NAMED).get_column("trace_id").to_list()
    if not named:
        return ""
    ids = snapshot.scan("facts").select("trace_id")
    parts = [pl.col("trace_id").str.contains(each, literal=True) for each in named]
    known = ids.filter(pl.any_horizontal(parts)).unique().collect(engine="streaming")
    words = [_with_meant(each, known.filter(part)) for each, part in zip(named, parts, strict=True)]
    more = len(unseen) - len(named)
    return ", ".join([*words, *([f"{more:,} more"] if more else [])])


def _with_meant(unknown: str, known: pl.DataFrame) -> str:
    shown = shortened(unknown, _LETTERS)
    if not len(known):
        return shown
    first = shortened(known.get_column("trace_id").sort().item(0), _LETTERS)
    if len(known) == 1:
        return f"{shown} (did you mean {first}?)"
    return f"{shown} (part of {len(known):,} ids, such as {first})"
