"""The page of a sweep: what other caches and thresholds would do to the scores."""

import polars as pl

from kp_batch.report.page import rendered
from kp_batch.report.report_data import LABEL, distinct_label
from kp_batch.report.sweep_charts import PANELS, domains_spec
from kp_batch.text import shortened

_DOMAINS = 10  # shown at the most
_BY_DOMAIN = (
    "Which share of the traces of each domain reaches the threshold, of several the lowest on top, "
    "with each cache; the tick is the combination in force."
)


def sweep_page(outcomes: pl.DataFrame, *, encoder_id: str, traces: int) -> str:
    """Write a sweep as HTML; see `Sweep`, whose fields these are.

    Args:
        outcomes: a column for each field of `Outcome`.
        encoder_id: what made the vectors.
        traces: how many there are.
    """
    domains = outcomes["task_domain"].n_unique() - 1
    rows, labels = _labelled(outcomes)
    specs = {each.name: each.spec(rows) for each in PANELS}
    specs["domains"] = domains_spec(rows, labels, _BY_DOMAIN)
    return rendered(
        "sweep.html",
        about=_BY_DOMAIN,
        encoder_id=encoder_id,
        labels=labels,
        more=domains - len(labels),
        panels=PANELS,
        rows=rows.to_dicts(),
        shown={name: {"spec": spec, "domains": labels} for name, spec in specs.items()},
        traces=traces,
    )


def _labelled(outcomes: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows of the largest domains with these domains' labels; empty for all domains."""
    sizes = outcomes.drop_nulls("task_domain").unique("task_domain", maintain_order=True)
    names = sizes.top_k(_DOMAINS, by="traces").get_column("task_domain").sort()
    labels: list[str] = []
    for name in names:
        labels.append(distinct_label(labels, shortened(name, LABEL)))
    label_of = pl.DataFrame({"task_domain": [None, *names], "domain": ["", *labels]})
    rows = outcomes.join(
        label_of, on="task_domain", nulls_equal=True, maintain_order="left"
    ).with_columns(share=pl.col("worth_sharing") / pl.col("traces"))
    return rows.drop("task_domain"), labels
