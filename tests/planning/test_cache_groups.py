"""A cache for each group of traces: what tells groups apart, and the novelty within each."""

import json
import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from kp_batch.archive.sources import discover, folders_named, path_keys
from kp_batch.config import RescoreConfig
from kp_batch.errors import KpBatchError, SettingError
from kp_batch.ingest.scan import scan_archive
from kp_batch.novelty.cache_settings import format_cache_by, parse_cache_by
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.explain_plan import PlanDescription, describe
from kp_batch.planning.plan import make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.runs.run import Run, effective_config
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.reader import connect
from tests.support.make.archives import trace, write_jsonl
from tests.support.read.folders import keep, restore
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

# Who scored a row, and where it and its cache are: other warehouses have others.
_ELSEWHERE = "run_id, source_file, cache_group"
CACHE = {"cache_size": 3, "ttl": "2d"}
WORDS = ["fix", "import", "export", "sum", "rows", "plan", "trip"]


def run(archive: Path | Sequence[Path], warehouse: Path, **settings: Any) -> Any:
    names = [archive] if isinstance(archive, Path) else archive
    options: dict[str, Any] = {"embedder": "hashing", "max_removed": "100%", **settings}
    config = RescoreConfig(archive=tuple(map(str, names)), warehouse=warehouse, **options)
    return rescore_archive(effective_config(config))


def scores(warehouse: Path, where: str = "true") -> pl.DataFrame:
    query = (
        f"SELECT * EXCLUDE ({_ELSEWHERE}) FROM scores WHERE {where} ORDER BY created_at, trace_id"
    )
    with connect(warehouse) as connection:
        return pl.DataFrame(connection.sql(query).to_arrow_table())


def planned(archive: Path, warehouse: Path, **settings: Any) -> PlanDescription:
    config = RescoreConfig(archive=(str(archive),), warehouse=warehouse, **settings)
    run = Run.begin(effective_config(config), datetime.now(UTC))
    run.staging.make()
    plan = make_plan(run, scan_archive(run, ThreadExecutor()), Scorer.of(run))
    return describe(run, plan)


def fleet(chance: random.Random, first: int, traces: int) -> list[dict[str, Any]]:
    """Traces of some agents, of which one has no name, with ties and repeated texts."""
    return [
        trace(
            id=f"kp:trace:{first + number:03d}",
            created_at=f"2026-01-{chance.randint(5, 12):02d}T{chance.randint(8, 11):02d}:00:00Z",
            objective=" ".join(chance.choices(WORDS, k=3)),
            agent_id=chance.choice(["a", "b", None]),
        )
        for number in range(traces)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive, and its warehouse with each grouping."""
    folder = tmp_path_factory.mktemp("groups") / "made"
    chance = random.Random(5)
    for number, host in enumerate(["x", "y", "z%20w"]):
        path = folder / "archive" / f"host={host}" / "a.jsonl"
        write_jsonl(path, fleet(chance, 100 * number, 40))
    write_jsonl(folder / "archive" / "b.jsonl", fleet(chance, 300, 20))
    for cache_by in ("none", "agent_id", "host", "agent_id+host"):
        run(folder / "archive", folder / cache_by, cache_by=cache_by, **CACHE)
    keep(folder)
    return folder


@pytest.fixture
def folder(made: Path) -> Path:
    restore(made)
    return made


def test_names_are_read_in_any_order_and_written_in_one() -> None:
    assert parse_cache_by("host+ agent_id") == ("agent_id", "host")
    assert parse_cache_by("agent_id+agent_id") == ("agent_id",)
    assert parse_cache_by("none") == ()
    assert format_cache_by(parse_cache_by("none")) == "none"
    assert format_cache_by(parse_cache_by("b+a.b-c")) == "a.b-c+b"
    for text in ("", "+", "a+", "none+a", "a=b", "a/b", "$.a", 'a"', "a b", "a,b", "\0"):
        with pytest.raises(ValueError, match="with \\+ between several"):
            parse_cache_by(text)


@pytest.mark.parametrize(
    ("below", "keys"),
    [
        ("f.parquet", {}),
        ("host=a/f.parquet", {"host": "a"}),
        ("host=a/plain/Day=2026-01-05/f.parquet", {"host": "a", "Day": "2026-01-05"}),
        ("host=a%20%2Fb/f.parquet", {"host": "a /b"}),
        ("host=/f.parquet", {"host": ""}),
        ("host=__HIVE_DEFAULT_PARTITION__/f.parquet", {"host": None}),
        ("h%20k=1/f.parquet", {"h%20k": "1"}),
        ("host=1=2/f.parquet", {}),
        ("key=in its name.parquet", {}),
    ],
)
def test_keys_of_paths_are_those_that_duckdb_reads(
    tmp_path: Path, below: str, keys: dict[str, str | None]
) -> None:
    path = tmp_path / "above=x" / below
    path.parent.mkdir(parents=True)
    pl.DataFrame({"v": [1]}).write_parquet(path)
    result = json.loads(path_keys(folders_named([f"{tmp_path}/above=x"]), str(path)))
    assert result == keys
    with duckdb.connect() as connection:
        query = "FROM read_parquet(?, hive_partitioning = true, hive_types_autocast = false)"
        rows = connection.execute(query, [str(path)])
        row = dict(
            zip([column[0] for column in rows.description or ()], rows.fetchall()[0], strict=True)
        )
    assert {name: row[name] for name in row if name not in ("v", "above")} == keys


@pytest.mark.telling
def test_keys_are_those_below_the_outermost_name(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a" / "host=x" / "rack=1" / "f.jsonl", [trace()])
    of = {
        "a": '{"host":"x","rack":"1"}',
        "a/": '{"host":"x","rack":"1"}',
        "a/host=*/rack=1/*.jsonl": '{"host":"x","rack":"1"}',
        "a/host=x": '{"rack":"1"}',
        "a/host=x/rack=?": '{"rack":"1"}',
        "a/host=x/rack=1/f.jsonl": "{}",
    }
    for name, keys in of.items():
        [source] = discover([f"{tmp_path}/{name}"])
        assert path_keys(folders_named([f"{tmp_path}/{name}"]), source.path) == keys
    both = folders_named([f"{tmp_path}/a/host=x/rack=1/f.jsonl", f"{tmp_path}/a/host=x"])
    assert path_keys(both, str(path)) == of["a/host=x"]
    url = folders_named(["s3://bucket/a/host=x/", "s3://bucket/a/*/rack=1"])
    assert path_keys(url, "s3://bucket/a/host=x/rack=1/f.jsonl") == of["a"]
    twice = folders_named(["/a"])
    assert path_keys(twice, "/a/host=out/host=in/f.jsonl") == '{"host":"out"}'


@pytest.mark.parametrize(
    ("cache_by", "count", "of_group"),
    [("host", 4, "none"), ("agent_id+host", 12, "agent_id")],
)
def test_each_group_has_the_scores_of_a_warehouse_of_its_own(
    folder: Path, tmp_path: Path, cache_by: str, count: int, of_group: str
) -> None:
    """Those of an agent and a host, the scores of an agent in a warehouse of the host's own."""
    rows = [
        json.loads(line)
        for path in (folder / "archive").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    [(groups,)] = ask_rows(folder / cache_by, "SELECT count(DISTINCT cache_group) FROM scores")
    assert groups == count
    name = cache_by.rpartition("+")[2]
    values = dict(
        ask_rows(folder / cache_by, f"SELECT trace_id, cache_group->>'{name}' FROM scores")
    )
    assert "z w" in values.values() or cache_by == "agent_id"
    together = scores(folder / cache_by)
    for value in {*values.values()}:
        alone = tmp_path / f"{value}"
        own = [row for row in rows if values[row["id"]] == value]
        write_jsonl(alone / "archive" / "a.jsonl", own)
        run(alone / "archive", alone / "warehouse", cache_by=of_group, **CACHE)
        expected = scores(alone / "warehouse")
        assert len(expected) == len(own)
        ids = expected.get_column("trace_id").implode()
        assert together.filter(pl.col("trace_id").is_in(ids)).equals(expected), value


def test_another_grouping_and_back_leaves_no_mark(folder: Path) -> None:
    before = scores(folder / "none")
    for cache_by in ("agent_id", "host"):
        run(folder / "archive", folder / "none", cache_by=cache_by)
        assert scores(folder / "none").equals(scores(folder / cache_by))
    assert run(folder / "archive", folder / "none").run_id is None
    run(folder / "archive", folder / "none", cache_by="none")
    assert scores(folder / "none").equals(before)
    assert ask_rows(folder / "none", "SELECT count(cache_group) FROM scores") == [(0,)]


def test_another_cache_or_encoder_is_each_groups_own(folder: Path) -> None:
    expected = scores(folder / "agent_id")
    for settings in (
        {"cache_size": 30, "ttl": "1d"},
        {"embedder": "none"},
        {"embedder": "hashing", **CACHE},
    ):
        run(folder / "archive", folder / "agent_id", **settings)
        assert scores(folder / "agent_id").equals(expected) == (settings.get("ttl") == "2d")


def test_the_last_of_several_copies_decides_the_host_and_traces_move_with_it(folder: Path) -> None:
    archive, groups = folder / "archive", "SELECT DISTINCT cache_group FROM scores WHERE {}"
    (archive / "host=a").mkdir()
    os.link(archive / "host=x" / "a.jsonl", archive / "host=a" / "a.jsonl")
    run(archive, folder / "warehouse", cache_by="host")
    in_x = groups.format("source_file LIKE '%host=x%'")
    assert ask_rows(folder / "warehouse", in_x) == [('{"host":"x"}',)]
    assert ask_rows(folder / "warehouse", groups.format("cache_group->>'host' = 'a'")) == []
    (archive / "host=x" / "a.jsonl").rename(archive / "host=y" / "b.jsonl")
    plan = planned(archive, folder / "warehouse")
    assert (plan.caches, plan.traces_without_value) == (3, 20)
    assert plan.traces_to_replay == 80  # of both hosts' traces, and no others
    run(archive, folder / "warehouse")
    run(archive, folder / "full", cache_by="host")
    assert scores(folder / "warehouse").equals(scores(folder / "full"))
    (archive / "host=y" / "b.jsonl").rename(archive / "host=y" / "c.jsonl")
    assert planned(archive, folder / "warehouse").traces_to_replay == 0


def test_what_is_above_the_name_is_no_key(folder: Path) -> None:
    host = folder / "archive" / "host=x"
    write_jsonl(host / "rack=1" / "c.jsonl", [trace(id="kp:trace:racked")])
    run(host, folder / "host", cache_by="rack")
    groups = ask_rows(folder / "host", "SELECT cache_group, count(*) FROM scores GROUP BY ALL")
    assert sorted(groups) == [('{"rack":"1"}', 1), ('{"rack":null}', 140)]
    keys = ask_rows(folder / "host", "SELECT DISTINCT path_keys FROM files WHERE status = 'gone'")
    assert sorted(keys) == [('{"host":"y"}',), ('{"host":"z w"}',), ("{}",)]  # as it was last seen


def test_under_other_names_the_same_files_have_other_keys(folder: Path) -> None:
    hosts = [folder / "archive" / "host=x", folder / "archive" / "host=y"]
    write_jsonl(folder / "more" / "host=m" / "a.jsonl", [trace(id="kp:trace:more")])
    run([*hosts, folder / "more"], folder / "host")
    groups = ask_rows(folder / "host", "SELECT cache_group, count(*) FROM scores GROUP BY ALL")
    assert sorted(groups) == [
        ('{"host":"m"}', 1),
        ('{"host":"z w"}', 40),  # gone: as it was last seen
        ('{"host":null}', 100),
    ]
    with pytest.raises(SettingError, match="there is no host"):  # though gone files had one
        run(hosts, folder / "host")


def test_a_late_trace_rescores_its_own_group_alone(tmp_path: Path) -> None:
    """And rewrites only the days that hold what is rescored."""
    days = [f"2026-01-{day:02d}T08:00:00Z" for day in range(5, 25)]
    rows = [
        trace(
            id=f"kp:trace:{number}-{agent}", created_at=day, agent_id=agent, objective=f"{number}"
        )
        for number, day in enumerate(days)
        for agent in ("a", "b", "c")
    ]
    rows = [row for row in rows if row["metadata"]["agent_id"] != "c" or row["id"][9] == "1"]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    run(tmp_path / "archive", tmp_path / "warehouse", cache_by="agent_id", cache_size=4)
    late = trace(id="kp:trace:late", created_at=days[2], agent_id="c", objective="late")
    write_jsonl(tmp_path / "archive" / "b.jsonl", [late])
    plan = planned(tmp_path / "archive", tmp_path / "warehouse")
    assert plan.traces_to_replay == 5  # itself, and the four of c that meet it
    own = [row["metadata"]["created_at"][:10] for row in rows if row["id"].endswith("c")]
    after = [day for day in own if day > days[2][:10]][:4]
    assert plan.partitions == [days[2][:10], *after]
    run(tmp_path / "archive", tmp_path / "warehouse")
    run(tmp_path / "archive", tmp_path / "full", cache_by="agent_id", cache_size=4)
    assert scores(tmp_path / "warehouse").equals(scores(tmp_path / "full"))


@pytest.mark.telling
def test_unknown_names_are_refused_with_those_that_there_are(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match="no rack; choose from agent_id, framework, task_domain, host"
    ):
        run(folder / "archive", tmp_path / "warehouse", cache_by="rack+agent_id")
    assert not (tmp_path / "warehouse" / "manifest.json").exists()
    message = r"no host; choose from agent_id, framework, task_domain \(the archive has no folder"
    with pytest.raises(SettingError, match=message):
        run(folder / "archive" / "host=x", tmp_path / "warehouse", cache_by="host")
    with pytest.raises(KpBatchError, match="--cache-by: it must be none, or agent_id"):
        RescoreConfig.read({"archive": ["a"], "warehouse": "w", "cache_by": "a=b"})


def test_different_values_make_different_groups_whatever_they_contain(tmp_path: Path) -> None:
    agents = [None, "", "null", '"', "a\0b", "a\nb", "é", "😀", "x" * 10_000, "a" * 2, "A" * 2]
    rows = [trace(id=f"kp:trace:{n}", agent_id=agent) for n, agent in enumerate(agents)]
    write_jsonl(tmp_path / "archive" / "a.jsonl", rows)
    plan = planned(tmp_path / "archive", tmp_path / "w", cache_by="agent_id", embedder="hashing")
    assert (plan.caches, plan.traces_without_value) == (len(agents), 1)
    assert "  caches     11, by agent_id; 1 trace without a value" in str(plan)
    run(tmp_path / "archive", tmp_path / "warehouse", cache_by="agent_id")
    scored = ask_rows(
        tmp_path / "warehouse", "SELECT cache_group, cached_vectors, novelty FROM scores"
    )
    assert sorted(json.loads(group)["agent_id"] or "" for group, *_ in scored) == sorted(
        agent or "" for agent in agents
    )
    assert {row[1:] for row in scored} == {(0, 0.5)}


def test_what_the_facts_did_not_keep_is_null_until_it_is_read_anew(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(source_skill="search"), trace(id="b")])
    run(tmp_path / "archive", tmp_path / "warehouse")
    rows = ask_rows(
        tmp_path / "warehouse", "SELECT trace_id, source_skill FROM scores ORDER BY ALL"
    )
    assert rows == [("b", None), ("kp:trace:1", "search")]
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(source_skill="other"), trace(id="b")])
    assert run(tmp_path / "archive", tmp_path / "warehouse").counts.rescored == 1
    rows = ask_rows(
        tmp_path / "warehouse", "SELECT trace_id, source_skill FROM scores ORDER BY ALL"
    )
    assert rows == [("b", None), ("kp:trace:1", "other")]
