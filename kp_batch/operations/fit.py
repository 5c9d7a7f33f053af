"""Fit the weights of profiles to labels, and test them on labels held out."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import polars as pl

from kp_batch.duck import sql
from kp_batch.errors import KpBatchError
from kp_batch.exports.output import check_output
from kp_batch.files import replacing
from kp_batch.fitting.suggestion import rank_ranges
from kp_batch.log import warn
from kp_batch.operations.fit_groups import Group, fit_groups, group_rows, traces_of, weights_of
from kp_batch.operations.fit_labels import read_labels, unused, with_known
from kp_batch.operations.fit_profiles import (
    check_begin,
    check_profiles_file,
    joined_sketch,
    profiles_text,
    reused_share,
    sketch_in,
    sketch_of,
    with_fitted,
)
from kp_batch.operations.fit_result import (
    BestThresholds,
    FittedGroups,
    LabelOrders,
    Leaks,
    Measure,
    Suggestions,
    UnusedLabels,
    WeightFit,
    WeightRows,
)
from kp_batch.operations.fit_rows import (
    conclusion_of,
    leak_rows,
    number,
    order_rows,
    weight_rows,
)
from kp_batch.runs.run import last_config, nothing_scored
from kp_batch.scoring.profiles import DEFAULT, ProfileVersions, load_profiles
from kp_batch.text import count_of, in_utc, printable, ten_of
from kp_batch.warehouse.bucket.location import shown
from kp_batch.warehouse.catalog import create_macros
from kp_batch.warehouse.open_snapshot import OpenSnapshot, open_published

_CANDIDATES = 20_000  # traces among which suggestions are searched
_MACROS = ("composite", "overrides")  # of the formulas, the files whose macros SQL calls
_EVIDENCE = "the same labels", "held-out folds", "later labels"  # in a file
_WEIGHTS = ("pc", "pn", "pd", "po"), ("fc", "fn", "fd", "fo")  # in fit_counts.sql


@dataclass(frozen=True)
class FitOptions:
    """What a fit compares with, and what it leaves.

    Attributes:
        profiles: a file of profiles to compare with, instead of the published ones.
        begin: the time from which fitted weights apply; None: at all times.
        output: the file to write all profiles to; None: none.
        suggest: how many traces to suggest for labelling, at most; None: none.
    """

    profiles: Path | None = None
    begin: datetime | None = None
    output: Path | None = None
    suggest: int | None = None


def fit_weights(warehouse: Path, labels: Any, options: FitOptions = FitOptions()) -> WeightFit:
    """Find the weights that order labels best, and test them on labels held out.

    The loss of weights is logistic, over pairs of traces with the same overrides and different
    labels: `log(1 + exp(-slope (score_i - score_j)))`, with i the better one and a slope that is
    fitted, too. Scores are whole, overrides included. Nothing in the warehouse changes.

    Args:
        warehouse: the folder of the tables.
        labels: see `read_labels`.
        options: what to compare with, and what to write.

    Raises:
        KpBatchError: labels cannot be read or used, are all the same, or the file cannot be
            written.
        WarehouseError: there is no warehouse or no scored trace.
    """
    with ExitStack() as stack:
        file = stack.enter_context(_output(warehouse, options.output)) if options.output else None
        result, sketch = _fit(warehouse, labels, options)
        if file:
            file.write_text(_profiles_text(result, options.begin, sketch), "utf-8")
    return result


@contextmanager
def _output(warehouse: Path, output: Path) -> Generator[Path]:
    """Yield a file that replaces the output when it is complete; refuse a wrong output at once."""
    check_output(warehouse, output.absolute())
    check_profiles_file(output)
    with replacing(output) as file:
        yield file


def _fit(warehouse: Path, labels: Any, options: FitOptions) -> tuple[WeightFit, list[str]]:
    """Return the result, and the sketch of the labels that its profiles were fitted to."""
    versions = _versions(warehouse, options)
    read = read_labels(labels)
    with open_published(warehouse) as snapshot:
        create_macros(snapshot.connection, *_MACROS)
        rows, read = _labelled(snapshot, read)
        newest, domains = _newest_and_domains(snapshot)
        current = versions.at(newest)
        published = {name: current.get(name, current[DEFAULT]) for name in [*domains, DEFAULT]}
        labelled = rows["task_domain"].unique().to_list()
        taken = (published[domain].name for domain in labelled)
        check_begin(versions, {*labelled, *taken}, options.begin, newest)
        groups = fit_groups(rows, published)
        thresholds = [*_thresholds(snapshot, groups)]
        suggestions = _suggestions(snapshot, groups, rows, options.suggest)
    fitted = {
        str(group.task_domain): [*map(float, group.fit.weights.values)]
        for group in groups[1:]
        if group.fit and group.decision == "change"
    }
    measure: Measure = "AUC" if groups[0].is_binary else "Spearman"
    earlier = _fitted_earlier(options, versions)
    result = WeightFit(
        measure=measure,
        labels=rows.height,
        unused=UnusedLabels.of(unused(read)),
        reused=reused_share(earlier.sketch, rows["trace_id"]) if earlier else None,
        reused_in=str(earlier.file) if earlier else None,
        groups=FittedGroups.of(group_rows(groups)),
        weights=WeightRows.of(weight_rows(groups)),
        orders=LabelOrders.of(order_rows(groups)),
        thresholds=BestThresholds.of(thresholds),
        leaks=Leaks.of(leak_rows(groups)),
        suggestions=Suggestions.of(suggestions),
        conclusion=conclusion_of(groups, measure),
        profiles=with_fitted(versions, fitted, options.begin, newest).as_json(),
        changed=tuple(fitted),
        output=str(options.output) if options.output else None,
        next_step=_next_step(options.output, warehouse) if fitted else None,
    )
    fitted_to = sketch_of(rows["trace_id"]) if fitted else []
    return result, joined_sketch(earlier.sketch if earlier else [], fitted_to)


def _versions(warehouse: Path, options: FitOptions) -> ProfileVersions:
    config = last_config(warehouse)
    return load_profiles(options.profiles) if options.profiles else config.profiles


def _labelled(snapshot: OpenSnapshot, read: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the labelled traces, and all labels with what keeps them from use."""
    usable = read.filter(pl.col("reason").is_null()).select("trace_id", "label", "weight")
    first = usable.unique("trace_id", keep="first", maintain_order=True)
    rows = snapshot.ask(sql(__name__, "fit_labelled.sql"), labels=first)
    read = with_known(read, rows["trace_id"])
    used = read.filter(pl.col("reason").is_null()).select("trace_id")
    rows = rows.join(used, on="trace_id", how="semi", maintain_order="left")
    if rows["label"].n_unique() < 2:
        _refuse(snapshot, rows, read)
    return rows, read


def _refuse(snapshot: OpenSnapshot, rows: pl.DataFrame, read: pl.DataFrame) -> None:
    """Refuse labels that cannot be ordered.

    Raises:
        WarehouseError: the warehouse has no score.
        KpBatchError: otherwise.
    """
    if not snapshot.scored:
        raise nothing_scored(snapshot.warehouse)
    why = ten_of(f"{row['labels']:,} because {row['because']}" for row in unused(read))
    if rows.height:
        said, others = read.filter(pl.col("reason").is_null())["said"][0], f"; others: {why}"
        raise KpBatchError(
            f"all usable labels ({rows.height:,}{others if why else ''}) are {printable(said)}, so "
            "there is nothing to order; add different ones"
        )
    raise KpBatchError(
        f"no label can be used for {shown(snapshot.warehouse)}: {why or 'there are none'}; give "
        "the trace_id of the view scores, and yes, no or numbers"
    )


def _newest_and_domains(snapshot: OpenSnapshot) -> tuple[datetime, list[str]]:
    """Return the time of the newest trace, and the domains of all."""
    query = "SELECT max(created_at), list(DISTINCT task_domain) FROM published.scores"
    [(newest, domains)] = snapshot.ask(query).rows()
    return in_utc(newest), domains


def _thresholds(snapshot: OpenSnapshot, groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    for group in groups:
        if group.fit is None or group.fit.thresholds is None:
            continue
        found = dict(zip(("published", "fitted"), group.fit.thresholds, strict=True))
        own = group.fit.weights.values.tolist()
        counts = _counts(snapshot, group, own, [each.value for each in found.values()])
        for weights, (value, served) in found.items():
            yield {
                "task_domain": group.task_domain,
                "weights": weights,
                "best_threshold": value,
                "precision": number(served.precision),
                "recall": number(served.recall),
                "traces": counts["traces"],
                "at_threshold": counts[weights],
            }


def _counts(
    snapshot: OpenSnapshot, group: Group, fitted: Sequence[float], thresholds: Sequence[float]
) -> dict[str, int]:
    """Count the traces of a group's domains, and those at the thresholds of both weights."""
    rows = [
        {
            "task_domain": domain,
            **dict(zip(_WEIGHTS[0], weights_of(group.published[domain]).tolist(), strict=True)),
            **dict(zip(_WEIGHTS[1], fitted, strict=True)),
            "published_threshold": thresholds[0],
            "fitted_threshold": thresholds[1],
        }
        for domain in group.domains
    ]
    [counts] = snapshot.ask(sql(__name__, "fit_counts.sql"), weights=pl.DataFrame(rows)).to_dicts()
    return counts


def _suggestions(
    snapshot: OpenSnapshot, groups: Sequence[Group], labelled: pl.DataFrame, most: int | None
) -> list[dict[str, Any]]:
    """Return unlabelled traces whose rank in their domain is least sure, one of each task."""
    if not most:
        return []
    query = sql(__name__, "fit_candidates.sql", most=_CANDIDATES)
    candidates = snapshot.ask(query, labelled=labelled.select("objective_hash").unique())
    fits = {group.task_domain: group.fit for group in groups if group.fit}
    found: list[pl.DataFrame] = []
    for (domain,), rows in candidates.group_by("task_domain", maintain_order=True):
        own = fits.get(str(domain)) or fits.get(None)
        if own and rows.height > 1:
            low, high = rank_ranges(traces_of(rows), own.weights.drawn)
            found.append(rows.with_columns(rank_low=pl.Series(low), rank_high=pl.Series(high)))
    if not found:
        warn(
            "there is no trace to suggest: each task has a label, or no labels suffice for a fit; "
            "add labels at random"
        )
        return []
    unsure = pl.concat(found).sort(pl.col("rank_low") - pl.col("rank_high"), "trace_id")
    return unsure.unique("objective_hash", keep="first", maintain_order=True).head(most).to_dicts()


class _Earlier(NamedTuple):
    """A file of profiles that were fitted to labels, and the sketch of these."""

    file: Path
    sketch: list[str]


def _fitted_earlier(options: FitOptions, versions: ProfileVersions) -> _Earlier | None:
    """Return the file with the tested weights, if these were fitted to labels.

    It is the file to compare with, or the one to be written if it has the published weights.
    """
    file = options.profiles or options.output
    if not file:
        return None
    with suppress(KpBatchError, OSError, ValueError):  # there is none yet, or it is another one
        if options.profiles or load_profiles(file) == versions:
            sketch = sketch_in(file)
            return _Earlier(file, sketch) if sketch else None
    return None


def _next_step(output: Path | None, warehouse: Path) -> str:
    file = quote(str(output)) if output else "FILE"
    before = "" if output else "write a file with -o FILE, then "
    return f"{before}kp-batch run --preview --profiles {file} --warehouse {quote(shown(warehouse))}"


def _profiles_text(result: WeightFit, begin: datetime | None, sketch: Sequence[str]) -> str:
    evidence = {row["task_domain"]: [*_evidence(result, row)] for row in result.groups}
    about = [
        f"{datetime.now(UTC):%Y-%m-%d}: {result.conclusion}",
        f"{count_of(result.labels, 'label')}; fitted weights apply "
        + (f"from {in_utc(begin).isoformat()}" if begin else "at all times"),
        f"next: {result.next_step}" if result.next_step else "nothing to do: no weights changed",
    ]
    return profiles_text(result.profiles, evidence, about, sketch)


def _evidence(result: WeightFit, group: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a domain's labels and its fit."""
    domain = group["task_domain"]
    about = f"{count_of(group['labels'], 'label')} of {count_of(group['tasks'], 'task')}"
    yield f"{about}: {group['decision']}"
    for row in result.orders:
        is_known = row["difference"] is not None  # or published scores are all equal
        if row["task_domain"] == domain and is_known and row["tested_on"] in _EVIDENCE:
            yield (
                f"  {result.measure}, {row['tested_on']}: {row['published_order']:.3f} published, "
                f"{row['fitted_order']:.3f} fitted, difference {_between(row, 'difference')}"
            )
    for row in result.weights:
        if row["task_domain"] == domain:
            yield f"  {row['dimension']} {_between(row, 'fitted_weight')}"


def _between(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    interval = "not identifiable" if low is None else f"{low:.3f} to {high:.3f}"
    return f"{row[name]:.3f} ({interval})"
