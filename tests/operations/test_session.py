"""Sessions of live scoring, against a plain loop over a cache."""

import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kp_batch.config import RescoreConfig
from kp_batch.embedding import encoders
from kp_batch.embedding.encoders import Hashing, load_encoder
from kp_batch.errors import KpBatchError, SettingError, WarehouseError
from kp_batch.novelty.cache import VectorCache
from kp_batch.operations.live import Session
from kp_batch.operations.score import Scored, score_lines
from kp_batch.operations.warehouse_cache import warehouse_cache
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.python.warehouse import Warehouse
from kp_batch.scoring.profiles import load_profiles
from kp_batch.stopping import pause
from kp_batch.warehouse.snapshot import published
from tests.support.make.archives import lines
from tests.support.make.hourly import WORDS, of_several_caches, said, settings_of, write
from tests.support.read.errors import fails_with
from tests.support.read.folders import contents, keep, restore

NOON = datetime(2026, 1, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATER = NOON + timedelta(days=30)
VECTORS = dict(zip(WORDS, Hashing().encode([f"{words} {words} " for words in WORDS]), strict=True))


def came(name: str | None, words: str, **more: Any) -> dict[str, Any]:
    return said(0, words, id=name, **more)


@dataclass(frozen=True)
class Came:
    """A trace as a session is given it; of the warehouse, as it was published."""

    name: str | None
    words: str
    time: datetime
    group: str = ""


def greatest(size: int, ttl: timedelta | None, earlier: Sequence[Came], new: Came) -> float | None:
    """The oracle: the engine's cache, filled with what came earlier in the group of a trace.

    Of several of one name the last one counts.
    """
    cache = VectorCache(size, ttl=ttl)
    for place, each in enumerate([*earlier, new][:-1]):
        later = {other.name for other in [*earlier[place + 1 :], new]} - {None}
        if each.group == new.group and each.name not in later:
            cache.add(VECTORS[each.words], each.time)
    return cache.max_cosine_similarity(VECTORS[new.words], new.time)


def notebook(runs: Sequence[Came], size: int) -> list[Came]:
    """The traces as if each cell had been run once: each in its place, as it was last.

    One that came before so many others that the cache has lost it comes anew.
    """
    traces: list[Came] = []
    for each in runs:
        places = [i for i, old in enumerate(traces) if old.name == each.name is not None]
        if places and places[-1] >= len(traces) - size:
            old = traces[places[-1]]
            traces[places[-1]] = Came(each.name, each.words, old.time, each.group)
        else:
            traces.append(each)
    return traces


cells = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "f"]), st.sampled_from(WORDS)),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@pytest.mark.telling
@given(
    cells=cells,
    order=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    size=st.integers(1, 4),
    ttl=st.sampled_from([None, 2 * MINUTE]),
)
@settings(max_examples=12, deadline=None)
def test_law_a_cell_that_is_run_again_equals_one_that_is_run_once(
    cells: list[list[tuple[str, str]]], order: list[int], size: int, ttl: timedelta | None
) -> None:
    session = Session(embedder="hashing", cache_size=size, ttl=ttl)
    runs: list[Came] = []
    for at in order:
        for name, words in cells[at % len(cells)]:
            runs.append(Came(name, words, NOON + len(runs) * MINUTE))
            found = session.evaluate(came(name, words), runs[-1].time)
            traces = notebook(runs, size)
            *_, place = (i for i, each in enumerate(traces) if each.name == name)
            assert found.max_similarity == greatest(size, ttl, traces[:place], traces[place])


@pytest.mark.slow
@given(
    runs=st.lists(st.tuples(st.sampled_from([None, None, "a", "b"]), st.sampled_from(WORDS))),
    size=st.integers(1, 4),
)
@settings(max_examples=12, deadline=None)
def test_law_a_trace_without_an_id_is_a_new_one_each_time(
    runs: list[tuple[str | None, str]], size: int
) -> None:
    session = Session(embedder="hashing", cache_size=size)
    seen: list[Came] = []
    for name, words in runs:
        seen.append(Came(name, words, NOON + len(seen) * MINUTE))
        found = session.evaluate(came(name, words), seen[-1].time)
        traces = notebook(seen, size)
        place = max(i for i, e in enumerate(traces) if name is None or e.name == name)
        earlier = traces[:place]
        assert found.max_similarity == greatest(size, None, earlier, traces[place])


def test_a_loop_no_longer_than_the_cache_scores_the_same_when_it_is_run_again() -> None:
    session = Session(embedder="hashing", cache_size=6)
    loop = [came(str(number), WORDS[number % 8]) for number in range(6)]
    once = [session.evaluate(each) for each in loop]
    assert [session.evaluate(each) for each in loop] == once
    assert session.compare_profiles(loop[3]) == once[3].by_profile


@pytest.mark.parametrize("embedder", ["hashing", "none"])
@pytest.mark.parametrize("every", [1, 2, 7, 20, 100])
def test_a_session_keeps_no_more_than_twice_its_cache_whatever_has_an_id(
    embedder: str, every: int
) -> None:
    session = Session(embedder=embedder, cache_size=3)
    for number in range(20):
        name = None if number % every else str(number)
        session.evaluate(came(name, WORDS[number % 8]))
    [cache] = session._caches.values()  # noqa: SLF001
    assert len(cache.came) == 6
    assert len(session._known) <= 6  # noqa: SLF001


def test_a_trace_gets_its_neighbours_and_everything_that_score_shows() -> None:
    session = Session(embedder="hashing")
    assert session.evaluate(came("a", "fix the import"), NOON).neighbours == ()
    found = session.evaluate(came("b", "fix the import"), NOON + MINUTE)
    assert isinstance(found, Scored)
    [near] = found.neighbours
    assert (near["trace_id"], near["task_domain"], near["age_s"]) == ("a", "code", 60)
    assert found.score == found.breakdown.score == found.by_profile["code"]
    assert session.evaluate(came("c", "fix it"), NOON + MINUTE).max_similarity is not None


def test_comparing_leaves_the_cache_as_it_is() -> None:
    session = Session(embedder="hashing")
    session.evaluate(came("a", "fix the import"))
    first = session.compare_profiles(came("b", "fix the export"))
    assert session.compare_profiles(came("b", "fix the export")) == first
    assert session.evaluate(came("b", "fix the export")).by_profile == first
    assert session.compare_profiles(came("b", "fix the export")) == first  # itself is not met


def test_settings_have_the_forms_of_a_run() -> None:
    weights = {"complexity": 0.1, "novelty": 0.7, "tool_diversity": 0.1, "outcome_confidence": 0.1}
    session = Session(embedder="hashing", cache_size=5, ttl="90m", profiles={"code": weights})
    assert session.evaluate(came("a", "fix it")).breakdown.terms[1].weight == 0.7
    assert [*session.compare_profiles(came("a", "fix it"))] == [*load_profiles().versions]
    assert repr(session) == "Session(hashing, fifo-5-ttl-90m-v1, 1 trace)"
    with pytest.raises(SettingError, match="cache_size must be at least 1"):
        Session(cache_size=0)
    with pytest.raises(SettingError, match="ttl: a duration must be none, or a whole number"):
        Session(ttl="soon")
    with pytest.raises(SettingError, match="group needs a warehouse; name it"):
        Session(group={"host": "a"})


def test_without_an_encoder_novelty_is_half() -> None:
    session = Session(embedder="none")
    assert [session.evaluate(came("a", "x")).breakdown.terms[1].value for _ in "ab"] == [0.5, 0.5]
    assert session.compare_profiles(came("a", "x")) == session.evaluate(came("a", "x")).by_profile


def test_without_an_encoder_a_trace_keeps_its_time_as_well() -> None:
    names = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
    first = dict.fromkeys(names, 0.0) | {"complexity": 1.0}
    later = dict.fromkeys(names, 0.0) | {
        "novelty": 1.0,
        "from": f"{NOON.date() + timedelta(days=1)}",
    }
    session = Session(embedder="none", profiles={"code": [first, later]})
    score = session.evaluate(came("a", "x"), NOON).score

    assert session.evaluate(came("a", "x"), LATER).score == score != 0.5
    assert session.evaluate(came("b", "x"), LATER).breakdown.composite == 0.5
    assert "2 traces" in repr(session)
    with pytest.raises(ValueError, match="the clock runs backwards"):
        session.evaluate(came("c", "x"), NOON)


def test_several_threads_may_use_a_session_and_sessions_do_not_meet() -> None:
    one, other = Session(embedder="hashing"), Session(embedder="hashing")
    with ThreadPoolExecutor(8) as pool:
        traces = [came(str(number), f"fix {number}") for number in range(16)]
        found = [*pool.map(one.evaluate, traces)]
    assert sorted(sum(n["similarity"] > 0 for n in f.neighbours) for f in found)[:1] == [0]
    assert sum(f.max_similarity is None for f in found) == 1
    assert other.evaluate(traces[0]).max_similarity is None


def test_sessions_share_an_encoder_which_goes_with_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoders, "LOADED", weakref.WeakValueDictionary())  # others may have one
    one, other = Session(embedder="minilm"), Session(embedder="minilm")
    encoder = weakref.ref(one._encoder)  # noqa: SLF001
    assert other._encoder is encoder()  # noqa: SLF001
    assert Session(precision="bf16")._encoder is not encoder()  # noqa: SLF001
    assert load_encoder("minilm") is encoder()
    del one, other
    assert encoder() is None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    """Eight traces, three of which are in the cache."""
    folder = tmp_path_factory.mktemp("made")
    write(folder, *range(8))
    config = settings_of(folder)
    rescore_archive(config)
    return config


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> RescoreConfig:
    """A warehouse of several caches."""
    folder = tmp_path_factory.mktemp("several")
    of_several_caches(folder)
    return settings_of(folder)


def before(warehouse: Path) -> list[Came]:
    """The published traces, the oldest first."""
    columns = ("trace_id", "created_at", "cache_group")
    rows = published(warehouse).scan("scores").sort("created_at", "trace_id").select(columns)
    return [
        Came(name, WORDS[int(name[1:])], time, group or "")
        for name, time, group in rows.collect().iter_rows()
    ]


@pytest.mark.slow
@pytest.mark.telling
@given(
    runs=st.lists(
        st.tuples(st.sampled_from(["t4", "t5", "t6", "t7", "a", "b"]), st.sampled_from(WORDS)),
        max_size=12,
    )
)
@settings(max_examples=12, deadline=None)
def test_law_with_a_warehouse_cells_may_be_run_again(
    made: RescoreConfig, runs: list[tuple[str, str]]
) -> None:
    untouched = contents(made.warehouse)
    session, seen = Session(made.warehouse), list[Came]()
    for name, words in runs:
        seen.append(Came(name, words, NOON + len(seen) * MINUTE))
        found = session.evaluate(came(name, words), seen[-1].time)
        traces = notebook(seen, 3)
        *_, place = (i for i, each in enumerate(traces) if each.name == name)
        again = {each.name for each in traces[: place + 1]}
        own = [each for each in before(made.warehouse) if each.name not in again]
        assert found.max_similarity == greatest(3, None, [*own, *traces[:place]], traces[place])
    assert contents(made.warehouse) == untouched


def scored_next(
    config: RescoreConfig, new: Any, moment: datetime = NOON, **group: str | None
) -> Scored:
    """What `kp-batch score` says of a trace."""
    with warehouse_cache(config.warehouse, moment, group) as (profiles, meet):
        [result] = score_lines(lines(new), profiles, moment, meet)
    assert isinstance(result, Scored)
    return result


@pytest.mark.slow
def test_the_first_trace_is_scored_as_the_command_scores_it(made: RescoreConfig) -> None:
    session = Session(made.warehouse)
    for name, words in zip((None, "new", "t7", "t6", "t0"), WORDS[:5], strict=True):
        new = came(name, words)
        assert session.evaluate(new, NOON) == scored_next(made, new)
        session.reset()
    # Of those before, later ones meet none either.
    both = [session, Session(made.warehouse)]
    for number in range(2):
        new = came(str(number), "plan a trip")
        one, other = (each.evaluate(new, NOON) for each in both)
        assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("host", ["a", None])
def test_each_trace_meets_the_cache_of_its_group(several: RescoreConfig, host: str | None) -> None:
    session = Session(several.warehouse, group={"host": host})
    for name, agent in (("new", "x"), ("t35", "y"), ("t34", None), ("t33", "y"), ("new", "x")):
        new = came(name, "fix the import", agent_id=agent)
        found = session.evaluate(new, LATER)
        assert found.max_similarity is not None
        assert found == scored_next(several, new, LATER, host=host)
        session.reset()
    with pytest.raises(KpBatchError, match="which the trace lacks"):
        Session(several.warehouse)


@pytest.mark.slow
def test_a_trace_that_moves_to_another_cache_leaves_its_own(several: RescoreConfig) -> None:
    session, other = (Session(several.warehouse, group={"host": "a"}) for _ in "ab")
    session.evaluate(came("new", "plan a trip", agent_id="x"), LATER)
    session.evaluate(came("new", "plan a trip", agent_id="y"), LATER)
    other.evaluate(came("new", "plan a trip", agent_id="y"), LATER)
    for agent in "xy":
        last = came("last", "plan a trip", agent_id=agent)
        assert session.evaluate(last, LATER) == other.evaluate(last, LATER)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("four") / "made"
    write(folder, *range(4))
    rescore_archive(settings_of(folder))
    keep(folder)
    return folder


@pytest.fixture
def four(once: Path) -> Path:
    """The folder of a warehouse of four traces, as its run left it."""
    restore(once)
    return once


@pytest.mark.slow
def test_what_is_published_later_does_not_come_into_a_session(four: Path) -> None:
    config = settings_of(four)
    session = Session(config.warehouse)
    wanted = scored_next(config, came("new", "plan a trip"))
    write(four, *range(8))
    rescore_archive(config)
    assert session.evaluate(came("new", "plan a trip"), NOON) == wanted
    assert scored_next(config, came("new", "plan a trip")) != wanted


@pytest.mark.slow
@pytest.mark.parametrize("how", ["vacuum", "another warehouse"])
def test_tables_that_are_gone_before_a_session_reads_them_are_reported(
    four: Path, how: str
) -> None:
    config = settings_of(four)
    session = Session(config.warehouse)
    if how == "vacuum":
        rescore_archive(config.model_copy(update={"cache_size": 1}))
        Warehouse(config.warehouse).vacuum(keep=timedelta(0))
    else:
        config.warehouse.rename(four / "old")
        rescore_archive(config)

    with pytest.raises(WarehouseError, match="the tables of this session are gone"):
        session.evaluate(came("a", "fix it"), NOON)


@pytest.mark.slow
def test_a_warehouse_has_its_own_settings_but_other_weights_may_be_given(
    made: RescoreConfig,
) -> None:
    weights = {"complexity": 0.1, "novelty": 0.7, "tool_diversity": 0.1, "outcome_confidence": 0.1}
    session = Session(Warehouse(made.warehouse), profiles={"code": weights})
    assert session.evaluate(came("a", "fix it"), NOON).breakdown.terms[1].weight == 0.7
    with pytest.raises(SettingError, match="has its own cache_size and ttl; leave out"):
        Session(made.warehouse, cache_size=3, ttl="1d")
    session.reset()
    with pytest.raises(ValueError, match="the clock runs backwards"):
        session.evaluate(came("a", "fix it"), datetime(2026, 1, 5, tzinfo=UTC))
    with fails_with(WarehouseError, "no_warehouse"):
        Session(made.warehouse / "none")


class Importing(dict[str, Any]):
    """A trace that imports a module, which Ctrl-C interrupts, while it is read; then it waits."""

    def get(self, key: str, default: Any = None) -> Any:
        import_module("imported_by_a_session")
        pause(10)  # no longer than somebody waits for it
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.get(key)


def test_ctrl_c_interrupts_no_import_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nis_whole = True\n"
    (tmp_path / "imported_by_a_session.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    session = Session(embedder="none")

    with pytest.raises(KeyboardInterrupt):
        session.evaluate(Importing(came("a", "fix it")), NOON)
    # It stays imported: the thread that nobody waits for may ask again, and would interrupt again.
    assert sys.modules["imported_by_a_session"].is_whole
    assert session.evaluate(came("a", "fix it"), NOON).score
