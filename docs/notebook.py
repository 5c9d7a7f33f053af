# From an archive to a decision on its weights: marimo edit docs/notebook.py

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # Should outcomes count for more?

    This notebook scores an archive, charts what the scores consist of, and previews other weights
    before anything is published. To read your own archive, change the names below.
    """)
    return


@app.cell
def _():
    import altair as alt
    import marimo as mo
    import polars as pl

    import kp_batch as kp

    return alt, kp, mo, pl


@app.cell
def _(kp):
    ARCHIVE = "data/sample"  # Parquet or JSONL files, folders, globs or URLs
    domain = "code"  # the one whose weights may change
    wh = kp.Warehouse("kp-batch-demo/notebook")
    # `hashing` compares words, in seconds; leave it out for the live engine's model.
    run = wh.run(ARCHIVE, embedder="hashing")
    run
    return domain, run, wh


@app.cell(hide_code=True)
def _(mo, run):
    mo.md(f"""
    {run.counts.accepted:,} traces have a score. Run the cell again: it has nothing to do.

    ## What the scores say

    **Over time.** The bands are 95% intervals. In the shaded days the cache was still warming up,
    so traces look too novel.
    """)
    return


@app.cell
def _(wh):
    wh.chart("scores_by_day")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    **By domain.** The dot is the mean with its interval, the bar contains nine tenths of the
    scores, the dashed line is the threshold.
    """)
    return


@app.cell
def _(wh):
    wh.chart("scores_by_domain")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    **What drives them.** How much each part explains of the differences between scores, in one
    domain.
    """)
    return


@app.cell
def _(domain, wh):
    wh.chart("dimension_effects", domain=domain)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    Do the scores rank agents by success, or by their tools?
    """)
    return


@app.cell
def _(domain, wh):
    def ranked(as_of=None):
        keys, measures = ["task_domain", "agent_id"], ["score", "success", "tools"]
        means = wh.ask("means_by", keys, measures, as_of=as_of).filter(task_domain=domain)
        return means.pivot("measure", index="agent_id", values="mean").sort("score")

    ranked()
    return (ranked,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What other weights would do

    A preview does the work of a run and publishes nothing. Only the weights of this domain change.
    """)
    return


@app.cell
def _(domain, mo, wh):
    weights = {
        domain: {
            "complexity": 0.2,
            "novelty": 0.3,
            "tool_diversity": 0.1,
            "outcome_confidence": 0.4,
        }
    }
    preview = wh.preview(profiles=weights)
    mo.stop(not preview.changes, mo.md("These weights are published: there is nothing to decide."))
    preview
    return (preview,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    **Which traces moved most.**
    """)
    return


@app.cell
def _(preview):
    preview.moved.to_polars().select(
        "trace_id", "before_score", "after_score", "change", "objective"
    ).head(5)
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    **Which domains moved.** Both sides have the same traces, so each change is exact.
    """)
    return


@app.cell
def _(alt, pl, preview):
    changes = (
        preview.comparison.domains.to_polars()
        .drop_nulls("task_domain")
        .select("task_domain", change=pl.col("after_mean") - pl.col("before_mean"))
    )
    alt.Chart(changes).mark_bar().encode(
        x=alt.X("change", title="change of the mean score"), y=alt.Y("task_domain", title=None)
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Is it more than chance?

    The change is exact; which agents really differ is uncertain. The intervals show how much the
    means would vary with other tasks, before (as published) and after (the preview).
    """)
    return


@app.cell
def _(domain, pl, preview, wh):
    def of_agents(weights, as_of):
        keys = ["task_domain", "agent_id"]
        agents = wh.ask("means_by", keys, ["score"], as_of=as_of).filter(task_domain=domain)
        return agents.with_columns(weights=pl.lit(weights))

    # `preview and` makes this cell wait for what the preview leaves.
    agents = pl.concat([of_agents("before", None), of_agents("after", preview and "candidate")])
    return (agents,)


@app.cell
def _(agents, alt):
    _order = ["before", "after"]
    _base = alt.Chart(agents).encode(
        y=alt.Y("agent_id", title=None),
        yOffset=alt.YOffset("weights", sort=_order),
        color=alt.Color("weights", sort=_order, title=None),
    )
    _mean = alt.X("mean", title="mean score, 95% interval", scale=alt.Scale(zero=False))
    _base.mark_rule().encode(x="low", x2="high") + _base.mark_circle(opacity=1).encode(x=_mean)
    return


@app.cell
def _(preview, ranked):
    ranked(preview and "candidate")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## The decision

    - Do the new weights rank agents by success rather than by their tools?
    - If the intervals of agents overlap, they had too few tasks for a ranking.

    **What labels say.** People's verdicts decide better than taste. These are made up: put your
    own into a frame with `trace_id` and `label`, yes or no, or a number. The fit finds the weights
    that order the labels best, and tests them on labels held out.
    """)
    return


@app.cell
def _(pl, wh):
    noise = pl.col("trace_id").hash(1) % 1000 / 2500
    verdict = pl.col("outcome_confidence") + noise > 0.85
    fit = wh.fit_weights(wh.scores().select("trace_id", label=verdict))
    fit
    return (fit,)


@app.cell
def _(fit):
    fit.chart()
    return


@app.cell(hide_code=True)
def _(fit, mo):
    mo.md(f"""
    The decision: {fit.conclusion}.

    Publish the fitted weights, or your own, as follows; `wh.rollback("previous")` takes them back:

    ```python
    wh.run(profiles=fit.profiles, note="weights from labels")
    ```
    """)
    return


if __name__ == "__main__":
    app.run()
