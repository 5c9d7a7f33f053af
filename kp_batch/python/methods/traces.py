"""Single traces, old and new, and the traces that they resemble."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, overload

from kp_batch.arguments import typed
from kp_batch.python.calls import Profiles, Traces, config_of, parsed
from kp_batch.text import in_utc, parse_count, parse_similarity

if TYPE_CHECKING:
    from kp_batch.operations.explanation import Explanation
    from kp_batch.operations.redundancy import Redundancy
    from kp_batch.operations.score import ScoredLines
    from kp_batch.operations.similar import SimilarLines, SimilarTraces

from kp_batch.python.methods.place import Place

Trace = Mapping[str, Any]


@typed
class TraceMethods(Place):
    """Explain, compare and score traces."""

    def explain(self, trace: str, *, candidate: bool = False) -> "Explanation":
        """Explain the score of a trace, and show the most similar traces.

        Args:
            trace: its id or the beginning of it.
            candidate: whether to explain its score in the candidate.

        Examples:
            >>> found = wh.explain("5e14f46f")
            >>> found.terms.select("dimension", pl.col("product").round(3)).rows()[:2]
            [('complexity', 0.083), ('novelty', 0.087)]
        """
        from kp_batch.operations.explain import explain

        with self._reading() as folder:
            return explain(folder, trace, candidate=candidate)

    @overload
    def similar(self, trace: str, *, top: int = 10) -> "SimilarTraces": ...

    @overload
    def similar(self, trace: Trace | Iterable[Trace], *, top: int = 10) -> "SimilarLines": ...

    def similar(self, trace: str | Traces, *, top: int = 10) -> "SimilarTraces | SimilarLines":
        """Find the traces of the whole archive that are most similar to one.

        Args:
            trace: its id or the beginning of it; or new traces, for which the result is a list.
            top: how many similar traces to find.

        Examples:
            >>> near = wh.similar("5e14f46f", top=2).nearest.to_polars()
            >>> near.select("is_same_text", pl.col("similarity").round(2)).rows()
            [(True, 1.0), (False, 0.89)]
        """
        from kp_batch.operations.similar import SimilarLines, similar_to_lines, similar_to_trace

        top = parsed(parse_count, top=top)
        with self._reading() as folder:
            if isinstance(trace, str):
                return similar_to_trace(folder, trace, top)
            lines = similar_to_lines(folder, _lines(trace), datetime.now(UTC), top)
            return SimilarLines(lines)

    def score(
        self,
        traces: Traces,
        *,
        profiles: Profiles | None = None,
        at: datetime | None = None,
        group: Mapping[str, str | None] | None = None,
    ) -> "ScoredLines":
        """Score new traces, each as if it came next. Writes nothing.

        Args:
            traces: one trace, several, or a frame of them.
            profiles: see `Session`.
            at: the time to score at; None: now.
            group: see `Session`.

        Returns:
            A list with a `Scored` for each trace, or an `Unscored` with its `reasons`.

        Examples:
            >>> [getattr(each, "score", None) for each in wh.score([trace, {}])]
            [0.55..., None]
        """
        from kp_batch.operations.score import ScoredLines, score_lines
        from kp_batch.operations.warehouse_cache import scoring

        weights = config_of({"warehouse": "", "profiles": profiles}).profiles if profiles else None
        moment = in_utc(at or datetime.now(UTC))
        with self._reading() as folder, scoring(folder, weights, moment, group or {}) as scorer:
            return ScoredLines(score_lines(_lines(traces), scorer[0], moment, scorer[1]))

    def redundancy(self, *, similarity: float = 0.95) -> "Redundancy":
        """Find the share of traces that repeat, or nearly repeat, an earlier one.

        Args:
            similarity: the lowest cosine of a near repeat, above 0, up to 1.

        Examples:
            >>> redundancy = wh.redundancy(similarity=0.95)
            >>> redundancy.exact_repeats, redundancy.near_repeats, redundancy.all_repeats
            (117, 7, 124)
        """
        from kp_batch.operations.redundancy import redundancy

        cosine = parsed(parse_similarity, similarity=similarity)
        with self._reading() as folder:
            return redundancy(folder, cosine)


def _lines(traces: Traces) -> BytesIO:
    from kp_batch.python.frames import lines

    return BytesIO(b"".join(lines(traces)))
