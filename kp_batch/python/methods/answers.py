"""Published tables and answers as frames, charts and pages."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from kp_batch.arguments import typed
from kp_batch.errors import SettingError

if TYPE_CHECKING:
    from altair.typing import ChartType


from kp_batch.python.methods.place import Place


@typed
class AnswerMethods(Place):
    """Read the tables, and ask questions."""

    def scores(self, as_of: str | None = None) -> pl.LazyFrame:
        """Return the view `scores`: a row for each trace. Later runs do not change the frame.

        Args:
            as_of: the run whose tables are read: its id or the beginning of it, latest, previous,
                candidate, or a time; None: the last run.

        Examples:
            >>> wh.scores(as_of="previous").select(pl.mean("novelty").round(3)).collect().item()
            0.214
        """
        return self._table("scores", as_of)

    def rejects(self, as_of: str | None = None) -> pl.LazyFrame:
        """Return the view `rejects`: a row for each rejected row or file.

        Args:
            as_of: see `scores`.

        Examples:
            >>> wh.rejects().select("source_file", "reasons", "message").collect().rows()
            []
        """
        return self._table("rejects", as_of)

    def profiles(self, as_of: str | None = None) -> pl.LazyFrame:
        """Return the view `profiles`: the weights of each profile.

        Args:
            as_of: see `scores`.

        Examples:
            >>> wh.profiles().filter(pl.col("name") == "code").select("novelty").collect().rows()
            [(0.3,)]
        """
        return self._table("profiles", as_of)

    def files(self, as_of: str | None = None) -> pl.LazyFrame:
        """Return the view `files`: a row for each file that was ever read.

        Args:
            as_of: see `scores`.

        Examples:
            >>> wh.files().select(pl.len(), pl.sum("rows")).collect().rows()
            [(21, 600)]
        """
        return self._table("files", as_of)

    def distributions(self, as_of: str | None = None) -> pl.LazyFrame:
        """Return the view `distributions`: a row for each domain after each run.

        Args:
            as_of: see `scores`.

        Examples:
            >>> of_code = wh.distributions().filter(pl.col("task_domain") == "code")
            >>> of_code.select("traces", pl.col("mean").round(3)).collect().rows()
            [(153, 0.516), (153, 0.526)]
        """
        return self._table("distributions", as_of)

    def sql(self, query: str, as_of: str | None = None, **frames: Any) -> pl.DataFrame:
        """Query the views, and your own frames, in DuckDB's SQL.

        Args:
            query: a query; other statements may come before it.
            as_of: see `scores`.
            frames: tables by the names that the query uses: frames of polars or pandas, or tables
                of Arrow. A name of a view is refused.

        Examples:
            >>> means = "FROM means_by('task_domain', ['score'])"
            >>> wh.sql(f"SELECT task_domain, round(mean, 3) {means} LIMIT 2").rows()
            [('code', 0.526), ('customer_service', 0.505)]
            >>> labels = wh.scores().head(50).select("trace_id", good="success").collect()
            >>> wh.sql("SELECT count(*) FROM scores JOIN own USING (trace_id)", own=labels).item()
            50
        """
        from kp_batch.warehouse.answer_formats import frame_answer, register_frames
        from kp_batch.warehouse.reader import connect

        with self._reading() as folder, connect(folder, as_of) as connection:
            register_frames(connection, frames)
            return frame_answer(connection, query)

    def vectors(self, ids: Iterable[str] | None = None) -> pl.DataFrame:
        """Return the stored vectors of traces, for a search or a model of your own.

        Args:
            ids: the traces; None: all of them, in the order of the replay.

        Returns:
            The strings trace_id and encoder_id, and vector, an array of Float32: a unit vector, or
            zeros for a text without words. There is a row for each of `ids`, in their order.

        Examples:
            >>> vectors = wh.vectors(wh.scores().head(3).collect()["trace_id"])
            >>> vectors["vector"].to_numpy().shape
            (3, 384)
        """
        from kp_batch.operations.vectors import vectors_of_traces

        with self._reading() as folder:
            return vectors_of_traces(folder, None if ids is None else [*ids])

    def ask(
        self, question: str, *values: Any, as_of: str | None = None, **named: Any
    ) -> pl.DataFrame:
        """Answer a named question; see `questions`.

        Args:
            question: the name of the question.
            values: the values of its parameters, in order. A condition is SQL. Columns, measures
                and runs are texts or lists of texts: `wh.ask("means_by", ["agent_id"], ["score"])`.
            as_of: see `scores`.
            named: values by the names of their parameters.

        Examples:
            >>> wh.ask("near_repeats", 0.99).height
            116
            >>> halves = wh.ask("score_histogram", bins=2).filter(task_domain="code")
            >>> halves.select("low", "traces").rows()
            [(0.0, 52), (0.5, 101)]
        """
        from kp_batch.operations.ask import ask

        with self._snapshot(as_of) as snapshot:
            return ask(snapshot, question, values, named)

    def questions(self) -> pl.DataFrame:
        """Return the named questions: `group`, `name`, `call`, `comment`, `example`.

        Examples:
            >>> wh.questions().filter(pl.col("name") == "near_repeats")["call"].item()
            'near_repeats(similarity)'
        """
        from kp_batch.warehouse.questions import questions

        return pl.DataFrame(questions())

    def report(self, format: Literal["html", "markdown"] = "html") -> str:  # noqa: A002 (the option's name)
        """Return the report on the scores.

        Args:
            format: `html`, a page that needs no other files; or `markdown`, its text and numbers.

        Examples:
            >>> wh.report("markdown").splitlines()[0]
            '# Scores of reasoning traces'
        """
        from kp_batch.report.build import report

        if format not in {"html", "markdown"}:
            raise SettingError(f"format {format!r} is unknown; choose html or markdown")
        with self._reading() as folder:
            return report(folder, format)

    def chart(self, name: str, domain: str | None = None) -> "ChartType":
        """Return a chart of the report in Altair, with its rows.

        Args:
            name: its name; the error for an unknown name lists all.
            domain: the domain to show; None: all together.

        Examples:
            >>> chart = wh.chart("scores_by_week", domain="code")
            >>> chart.save("scores.html")
            >>> chart.to_dict()["title"]["text"]
            'Score and novelty over time'
        """
        from kp_batch.operations.chart import chart

        with self._reading() as folder:
            return chart(folder, name, domain)

    def _table(self, name: str, as_of: str | None) -> pl.LazyFrame:
        from kp_batch.warehouse.lazy import lazy_view

        with self._snapshot(as_of) as snapshot:
            return lazy_view(snapshot, name)
