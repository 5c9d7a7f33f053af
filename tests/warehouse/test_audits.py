"""Audits: what must not be published is not, by SQL that reads the tables and nothing else."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kp_batch.errors import AuditError, KpBatchError, WarehouseError
from kp_batch.operations.current_settings import settings
from kp_batch.operations.forget import forget
from kp_batch.operations.preview import plan
from kp_batch.pipeline.audit import audit
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.report.run_summary import Summary
from kp_batch.runs.run import effective_config
from kp_batch.warehouse.audits import audits_text, load_audits
from kp_batch.warehouse.manifest import read_manifest
from tests.support import ROOT
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.publications import files_of
from tests.support.make.runs import config
from tests.support.processes.commands import invoke
from tests.support.read.queries import ask_rows

pytestmark = pytest.mark.slow

READY = ROOT / "data" / "audits.toml"
Night = Callable[..., Summary]


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """Run over the archive, with audits of these texts."""

    def run(*rows: dict[str, Any], audits: Any = None, **changes: Any) -> Summary:
        if rows:
            name = f"{len([*(tmp_path / 'archive').glob('*')])}.jsonl"
            write_jsonl(tmp_path / "archive" / name, list(rows))
        changes |= {"audits": audits} if audits is not None else {}
        return rescore_archive(effective_config(config(tmp_path, tmp_path / "archive", **changes)))

    return run


def errors(**sql: str) -> dict[str, Any]:
    return {name: {"sql": query} for name, query in sql.items()}


def outcomes(summary: Summary) -> dict[str, tuple[int, bool]]:
    return {result.name: (result.rows, result.fails) for result in summary.audits}


def test_an_audit_sees_what_would_be_published_and_what_is(night: Night, tmp_path: Path) -> None:
    audits = errors(
        now="SELECT count(*) FROM scores HAVING count(*) <> 2",
        before="FROM published.scores UNION ALL BY NAME FROM published.runs",
        question="FROM distributions WHERE run_id <> latest() OR traces = 0",
        own_run="SELECT 1 FROM runs HAVING count(*) <> 1 OR any_value(status) <> 'done'",
    )
    assert set(outcomes(night(trace(id="a"), trace(id="b"), audits=audits)).values()) == {
        (0, False)
    }
    more = errors(
        kept="FROM published.scores ANTI JOIN scores USING (trace_id)",
        same="FROM scores ANTI JOIN published.scores USING (trace_id)",
        drift="FROM drift(previous(), latest()) WHERE traces_b <> 3 AND task_domain IS NULL",
    )
    results = night(trace(id="c"), audits=more, allow_audit=("same",)).audits
    assert [(result.name, result.rows, result.allowed) for result in results] == [
        ("kept", 0, False),
        ("same", 1, True),
        ("drift", 0, False),
    ]
    assert json.loads(results[1].first[0])["trace_id"] == "c"
    query = "SELECT audits, config->'allow_audit' FROM runs ORDER BY number"
    [_, (recorded, allowed)] = ask_rows(config(tmp_path, tmp_path).warehouse, query)
    assert json.loads(allowed) == ["same"]
    assert json.loads(recorded)[1] == {
        "name": "same",
        "severity": "error",
        "rows": 1,
        "allowed": True,
        "digest": results[1].digest,
    }


def test_an_audit_that_fails_publishes_no_scores_and_all_are_named_but_forgetting_is_done(
    night: Night, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    night(trace(id="a"))
    before = read_manifest(tmp_path / "warehouse")
    many = "SELECT i FROM range(7) r(i) WHERE i < (SELECT count(*) FROM scores) * 7 ORDER BY i DESC"
    audits = errors(many=many, other="SELECT 'x' AS one", fine="FROM scores LIMIT 0")
    audits["soft"] = {"sql": "SELECT 2 AS two", "severity": "warn"}
    message = r"^2 audits failed: many \(7 rows\), other \(1 row\); no scores were published; "
    with pytest.raises(AuditError, match=message) as caught:
        night(trace(id="b"), audits=audits, threshold=0.1)
    assert [result.rows for result in caught.value.results] == [7, 1, 0, 1]
    assert 'audit many found 7 rows: {"i":6}; {"i":5}; {"i":4}; {"i":3}; {"i":2}' in caplog.text
    assert 'audit soft found 1 row: {"two":2}' in caplog.text
    after = read_manifest(tmp_path / "warehouse")
    assert before
    assert after
    assert after.settings == before.settings
    [now, then] = (
        files_of(tmp_path / "warehouse", "scores", manifest) for manifest in (after, before)
    )
    assert now == then
    query = "SELECT status, reason, audits FROM runs ORDER BY number DESC LIMIT 1"
    [(status, reason, results)] = ask_rows(config(tmp_path, tmp_path).warehouse, query)
    assert (status, reason) == ("failed", str(caught.value))
    assert [entry["rows"] for entry in json.loads(results)] == [7, 1, 0, 1]
    summary = night(audits=audits, allow_audit=("many", "other"), threshold=0.1)
    assert summary.run_id
    assert audits_text(summary.audits) == "1 of 4 pass, many allowed, other allowed, soft warns"
    assert f"  audits     {audits_text(summary.audits)}" in str(summary)
    assert forget(tmp_path / "warehouse", ["a"]).traces == 1  # which they do not hold up


def test_they_are_kept_by_value_run_on_a_quiet_night_and_end(night: Night, tmp_path: Path) -> None:
    file = tmp_path / "audits.toml"
    file.write_text("[audits.few]\nsql = \"FROM scores WHERE trace_id = 'b'\"\n")
    first = night(trace(id="a"), audits=file)
    file.unlink()
    summary = night()
    assert (summary.run_id, outcomes(summary)) == (None, {"few": (0, False)})
    assert str(summary).endswith("; audits: 1 of 1 pass")
    [kept] = [
        setting for setting in settings(tmp_path / "warehouse") if setting["name"] == "audit few"
    ]
    assert (kept["run_id"], kept["value"]["severity"]) == (first.run_id, "error")
    assert night(trace(id="b"), allow_audit=("few",)).run_id
    runs = ask_rows(config(tmp_path, tmp_path).warehouse, "SELECT count(*) FROM runs")
    with pytest.raises(AuditError, match="few"):
        night()
    assert (
        ask_rows(config(tmp_path, tmp_path).warehouse, "SELECT count(*) FROM runs") == runs
    )  # nothing was done
    ended = night(audits="none")
    assert (ended.audits, ended.counts.rescored) == ((), 0)
    query = "SELECT changes FROM runs ORDER BY number DESC LIMIT 1"
    [(changes,)] = ask_rows(config(tmp_path, tmp_path).warehouse, query)
    assert [entry["words"] for entry in json.loads(changes)] == ["audit few gone"]
    assert not night().audits


def test_an_error_is_reported_each_time_unless_it_is_allowed(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    def new_warnings(*rows: dict[str, Any], **changes: Any) -> list[str]:
        """The warnings that a run with --quiet shows."""
        caplog.clear()
        with suppress(AuditError):
            night(*rows, **changes)
        shown = [record for record in caplog.records if record.levelname == "WARNING"]
        return [record.getMessage() for record in shown if not record.__dict__["repeated"]]

    failing = errors(last="SELECT max(trace_id) AS last FROM scores")
    new_warnings(trace(id="a"), audits=failing, allow_audit=("last",))
    assert new_warnings(allow_audit=("last",)) == []
    assert new_warnings() == new_warnings() == ['audit last found 1 row: {"last":"a"}']


def test_traces_of_the_future_are_reported_once(
    night: Night, caplog: pytest.LogCaptureFixture
) -> None:
    def repeated(*rows: dict[str, Any]) -> list[bool]:
        caplog.clear()
        night(*rows)
        about = [record for record in caplog.records if "in the future" in record.getMessage()]
        return [record.__dict__["repeated"] for record in about]

    assert repeated(trace(id="a", created_at="2999-01-01T00:00:00Z")) == [False]
    assert repeated(trace(id="b", created_at="2026-01-01T00:00:00Z")) == [True]  # it is replayed
    assert repeated(trace(id="c", created_at="2999-01-02T00:00:00Z")) == [False]


WRONG = {
    "SELECT nothing FROM scores": "nothing",
    "SELEC 1": "syntax error",
    "": "it is one SELECT",
    "SELECT 1; SELECT 2": "it is one SELECT",
    "COPY (SELECT 1) TO '{folder}/out.csv'": "it is one SELECT",
    "ATTACH '{folder}/out.db'": "it is one SELECT",
    "SET threads = 1": "it is one SELECT",
    "FROM read_text('{folder}/secret')": "disabled",
    "FROM read_csv('{folder}/secret')": "disabled",
    "FROM '{folder}/warehouse/manifest.json'": "disabled",
    "FROM glob('{folder}/*')": "disabled",
    "FROM 'https://example.org/a.parquet'": "disabled",
    "WITH gone AS (DELETE FROM manifest RETURNING *) FROM gone": "read-only",
    "WITH made AS (INSERT INTO scores SELECT 1 AS score RETURNING *) FROM made": "is not an",
}


def assert_refused(work: Callable[[], object], whys: Mapping[str, str]) -> None:
    """That audits of this SQL, named by their numbers, cannot be run, with the reason of each."""
    with pytest.raises(KpBatchError, match=r"^audits cannot be run: ") as caught:
        work()
    faults = re.split(r"[:;] (?=wrong\d+: )", str(caught.value))[1:]
    assert len(faults) == len(whys), caught.value
    for number, ((sql, why), fault) in enumerate(zip(whys.items(), faults, strict=True)):
        assert fault.startswith(f"wrong{number}: "), sql
        assert why in fault, sql


@pytest.mark.telling
def test_sql_that_cannot_run_or_looks_elsewhere_is_refused_by_plan_and_run(
    night: Night, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("a\n1\n")
    night(trace(id="a"))
    before = sorted(tmp_path.rglob("*"))
    published = read_manifest(tmp_path / "warehouse")
    audits = errors(
        fine="FROM scores LIMIT 0",
        **{f"wrong{n}": sql.format(folder=tmp_path) for n, sql in enumerate(WRONG)},
    )
    run_config = config(tmp_path, tmp_path / "archive", audits=audits)
    for work in (plan, rescore_archive):
        assert_refused(partial(work, run_config), WRONG)
    assert read_manifest(tmp_path / "warehouse") == published
    assert [path for path in before if not path.exists()] == []
    assert not list(tmp_path.glob("out*"))


def test_what_only_shows_when_it_runs_fails_the_run_by_name(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whys = {
        "SELECT list(i || 'x') FROM range(2_000_000_000) r(i)": "Out of Memory",
        "SELECT error('on purpose') FROM scores": "on purpose",
    }
    monkeypatch.setattr("kp_batch.duck.SPILLING_MEMORY_BYTES", 64 << 20)
    audits = errors(**{f"wrong{n}": sql for n, sql in enumerate(whys)}, fine="FROM scores LIMIT 0")
    assert_refused(lambda: night(trace(id="a"), audits=audits), whys)
    manifest = read_manifest(tmp_path / "warehouse")
    assert manifest is None or "scores" not in manifest.tables


def test_a_warehouse_whose_name_has_a_star_is_audited(tmp_path: Path) -> None:
    archive = write_jsonl(tmp_path / "a.jsonl", [trace(id="a")])
    audits = errors(all="FROM scores", facts="FROM files")
    own = config(tmp_path, archive, warehouse=tmp_path / "w*h", audits=audits)
    with pytest.raises(AuditError, match=r"all \(1 row\), facts \(1 row\)"):
        rescore_archive(own)


@pytest.mark.telling
def test_allow_of_no_audit_is_refused(night: Night) -> None:
    with pytest.raises(KpBatchError, match=r"--allow-audit: there is no audit 'x'; there is none"):
        night(trace(id="a"), allow_audit=("x",))
    with pytest.raises(KpBatchError, match=r"no audit 'x', 'y'; there are one, two; .*two: Parser"):
        night(audits=errors(one="FROM scores", two="FROM"), allow_audit=("x", "y"))


def test_a_run_is_audited_against_what_was_published_before_it(
    night: Night, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    audits = errors(new="FROM scores ANTI JOIN published.scores USING (trace_id) ORDER BY trace_id")
    night(trace(id="a"))
    with pytest.raises(WarehouseError, match="has no audits"):
        audit(warehouse)
    night(trace(id="b"), trace(id="c"), audits=audits, allow_audit=("new",))
    assert [result.rows for result in audit(warehouse)] == [2]
    assert [result.rows for result in audit(warehouse, "latest")] == [2]
    assert [result.rows for result in audit(warehouse, "previous")] == [1]
    done = invoke("audit", "previous", "--warehouse", warehouse)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["new", "fails", "1"]
    assert '"trace_id":"a"' in done.stdout
    assert done.stderr == "kp-batch: 1 audit failed: new (1 row); what is published stays\n"
    output = invoke("audit", "--json", "--warehouse", warehouse)
    [result] = json.loads(output.stdout)
    assert (result["name"], result["rows"], len(result["first"])) == ("new", 2, 2)


@pytest.mark.telling
@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["no [audits.NAME] table"]),
        ("[other]\n[audits.a]\nsql = 'FROM scores'", ["unknown key 'other'"]),
        ("[audits.a]", ["a: sql is missing"]),
        ("[audits]\na = 1", ["a: expected a table with sql, got 1"]),
        ("audits = 1", ["audits must be a table of audits, got 1"]),
        (
            "[audits.'a b']\nsql = 1\nseverity = 'high'\nmore = 2",
            [
                "got 'a b'",
                "no key 'more'; keys: sql, severity",
                "sql is missing",
                "error or warn, got 'high'",
            ],
        ),
        ("[audits.a", ["cannot be read"]),
    ],
)
def test_all_faults_of_a_file_are_reported(tmp_path: Path, text: str, faults: list[str]) -> None:
    (tmp_path / "audits.toml").write_text(text)
    with pytest.raises(KpBatchError, match=r"audits\.toml") as caught:
        load_audits(tmp_path / "audits.toml")
    assert [fault for fault in faults if fault not in str(caught.value)] == []


def day(number: int) -> str:
    return f"2026-01-{number:02}T12:00:00Z"


def test_the_ready_audits_find_what_they_are_for(night: Night) -> None:
    rows = [
        trace(
            id=f"{number}",
            objective=f"task {number}",
            created_at=day(1 + number % 5),
            confidence=0.9,
        )
        for number in range(40)
    ]
    assert set(outcomes(night(*rows, audits=READY)).values()) == {(0, False)}
    names = [*tomllib.loads(READY.read_text())["audits"]]
    later = [
        *(
            trace(id=f"s{number}", objective="same", created_at=day(6), confidence=0.1)
            for number in range(50)
        ),
        trace(id="future", created_at="2999-01-01T00:00:00Z"),
        trace(id="off", task_domain="other", created_at=day(9), quality_score=0.9999),
        trace(id="", created_at=day(9)),
    ]
    options = {"cache_by": "agent_id", "max_reject_share": 1, "allow_audit": names}
    agents = [
        trace(id=f"g{number}", agent_id=f"agent {number}", created_at=day(number))
        for number in (1,)
    ]
    counts = {name: rows for name, (rows, _) in outcomes(night(*later, *agents, **options)).items()}
    assert counts == {
        "no_domain_shifts": 1,
        "no_silent_domain": 1,
        "no_silent_group": 1,
        "few_copies": 1,
        "no_future_times": 1,
        "scores_as_recorded": 1,
    }
