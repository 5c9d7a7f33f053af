"""Commands under a project's file: what they need no argument for, and what they refuse."""

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from kp_batch.warehouse.manifest import require_manifest
from tests.support.imports.importing import kp_trace, write_json
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke
from tests.support.read.folders import contents, keep, restore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project made by init, after its first night."""
    folder = tmp_path_factory.mktemp("project") / "made"
    rows = [trace(id=f"kp:trace:{number}", objective=f"do {number}") for number in range(5)]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        made = invoke("init", "archive", "--embedder", "hashing", "--no-report")
        assert made.returncode == 0, made.stderr
        night = invoke("run", "--quiet", "--no-prefect")
        assert (night.returncode, night.stdout, night.stderr) == (0, "", "")
    keep(folder)
    return folder


@pytest.fixture
def made(once: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    restore(once)
    monkeypatch.chdir(once)
    monkeypatch.delenv("KP_BATCH_WAREHOUSE", raising=False)
    return once


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "kp_batch.toml"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def night(*options: object) -> tuple[int, str]:
    """The exit status of a quiet run, and what it prints on stderr."""
    done = invoke("run", "--quiet", "--no-prefect", *options)
    assert done.stdout == ""
    return done.returncode, done.stderr


def done_with(*changes: str) -> tuple[int, str]:
    """What `night` returns where settings changed."""
    return 0, f"kp-batch: settings changed: {'; '.join(changes)}\n"


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_deployment_of_an_existing_project_is_written_into_its_folder(made: Path) -> None:
    before = files_of(made)
    done = invoke("init", "--prefect")
    assert (done.returncode, done.stdout) == (0, "")
    assert "prefect.yaml deploys it; run in its folder: prefect --no-prompt deploy" in done.stderr
    written = files_of(made)
    assert before.items() < written.items()
    added = {"prefect.yaml"}
    assert written.keys() - before.keys() == added
    with (made / "prefect.yaml").open("a") as file:
        file.write("# mine")
    for words, told in (
        (["--prefect"], "prefect.yaml already exists; leave out --prefect, or move that file"),
        (["--prefect", "--cache-size", 3], "change it, and leave out --cache-size"),
        (["--prefect", "archive"], "to add a deployment: kp-batch init --prefect"),
        ([], "Missing argument ARCHIVE"),
        (["--prefect", "-o", "other.toml"], "Missing argument ARCHIVE"),
    ):
        done = invoke("init", *words)
        assert (done.returncode != 0, told in done.stderr) == (True, True), done.stderr
    for path in added:
        (made / path).unlink()
    change(made, "# cache_size", "cashe_size")
    assert "has no key 'cashe_size'" in invoke("init", "--prefect").stderr
    assert files_of(made).keys() == before.keys()


@pytest.mark.telling
@pytest.mark.usefixtures("made")
def test_commands_need_no_argument() -> None:
    for words in (["plan"], ["sql", "FROM scores"], ["runs"], ["settings"], ["audit"], ["status"]):
        done = invoke(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert night() == (0, "")
    [row] = json.loads(invoke("sql", "SELECT count(*) AS n FROM scores", "--json").stdout)
    assert row == {"n": 5}


def test_another_folder_names_the_file(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Missing option '--warehouse'" in invoke("runs").stderr
    assert night("--project", made / "kp_batch.toml") == (0, "")
    monkeypatch.setenv("KP_BATCH_PROJECT", str(made / "kp_batch.toml"))
    assert "5 scores are up to date" in invoke("run", "--no-prefect").stdout
    assert invoke("runs", "--json").stdout.count("run_id") == 1


def test_an_archive_that_is_away_is_asked_for_its_disk(made: Path) -> None:
    (made / "archive").rename(made / "away")
    told = "archive', which the last run read; is its disk mounted? If it was moved, name its new"
    for is_there in (False, True):
        if is_there:
            (made / "archive").mkdir()
        for words in (["run", "--no-prefect"], ["run", "archive", "--no-prefect"], ["plan"]):
            done = invoke(*words)
            assert done.returncode == 1, words
            assert told in done.stderr, words
    assert "at 'elsewhere'; name a file" in invoke("plan", "elsewhere").stderr


def test_a_line_taken_out_is_a_setting_taken_back(made: Path) -> None:
    change(made, "# cache_size = 1000", "cache_size = 2")
    assert night() == done_with("cache size 1000 to 2")
    change(made, "cache_size = 2", "")
    planned = invoke("plan").stdout
    assert "cache size 2 \N{RIGHTWARDS ARROW} 1000" in planned
    assert night() == done_with("cache size 2 to 1000")
    assert night() == (0, "")
    assert require_manifest(made / "warehouse").settings["cache_size"] == 1000


def test_a_changed_embedder_is_reported_with_its_line_if_texts_cannot_be_read(
    made: Path,
) -> None:
    rows = [trace(id=f"b{number}", objective=f"Something else {number}") for number in range(2)]
    change(made, 'embedder = "hashing"', 'embedder = "none"')
    write_jsonl(made / "archive" / "b.jsonl", rows)
    assert night() == done_with("embedder hashing to none")
    (made / "archive" / "b.jsonl").unlink()
    assert night("--max-gone", 1) == (0, "")
    change(made, 'embedder = "none"', 'embedder = "hashing"')
    lines = (made / "kp_batch.toml").read_text("utf-8").split("\n")
    number = lines.index('embedder = "hashing"') + 1
    remedy = "; go back with embedder = 'none' in [settings] of kp_batch.toml, restore what is"
    status, error = night()
    assert status == 1
    last = json.loads(invoke("status", "--json").stdout)["last_run"]
    assert (last["status"], last["code"]) == ("refused", "no_texts")
    assert f"embedder none to hashing (kp_batch.toml, line {number}); traces of 1 file" in error
    assert remedy in error
    change(made, 'embedder = "hashing"', 'embedder = "none"')
    assert "; go back with --embedder none, restore" in night("--embedder", "hashing")[1]


def test_a_scratch_warehouse_takes_what_the_project_sets_each_night_and_says_so(
    made: Path, tmp_path: Path
) -> None:
    (made / "archive" / "bad.jsonl").write_text("{}\n")
    change(made, "# cache_size = 1000", "cache_size = 2")
    change(made, "# exclude = []", 'exclude = ["bad.jsonl"]')
    done = invoke("run", "--no-prefect", "--warehouse", tmp_path / "scratch")
    assert done.returncode == 0, done.stderr
    assert "scratch uses the settings of kp_batch.toml, which is for another" in done.stderr
    assert night("--warehouse", tmp_path / "scratch")[0] == 0
    assert require_manifest(tmp_path / "scratch").settings["cache_size"] == 2
    assert require_manifest(made / "warehouse").settings["cache_size"] == 1000
    told = invoke("sql", "FROM files", "--json", "--warehouse", tmp_path / "scratch")
    assert [row["status"] for row in json.loads(told.stdout)] == ["read"]


def test_another_warehouse_keeps_its_archive_and_its_traces(made: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "other" / "a.jsonl", [trace(id="other")])
    words = ["--warehouse", tmp_path / "w", "--embedder", "none", "--no-prefect"]
    assert invoke("run", tmp_path / "other", *words, "--project", "/dev/null").returncode == 0
    change(made, "# prune = false", "prune = true")
    done = invoke("run", "--quiet", "--no-prefect", "--warehouse", tmp_path / "w")
    assert done.returncode == 0, done.stderr
    assert "w uses the settings of kp_batch.toml, which is for another" in done.stderr
    told = invoke("sql", "SELECT trace_id FROM scores", "--json", "--warehouse", tmp_path / "w")
    assert json.loads(told.stdout) == [{"trace_id": "other"}]


@pytest.mark.telling
def test_a_rollback_and_the_file_agree_before_the_next_night(made: Path) -> None:
    change(made, "# cache_size = 1000", "cache_size = 2")
    change(made, "# threshold = 0.75", "threshold = 0.5")
    assert night() == done_with("cache size 1000 to 2", "threshold 0.75 to 0.5")
    lines = (made / "kp_batch.toml").read_text("utf-8").split("\n")
    places = [lines.index(line) + 1 for line in ("cache_size = 2", "threshold = 0.5")]
    told = f"cache_size 2 (line {places[0]}), threshold 0.5 (line {places[1]})"
    for dry_run in (["--dry-run"], []):
        rolled = invoke("rollback", "previous", *dry_run)
        assert rolled.returncode == 0
        assert f"the project would bring back what this undoes: {told}" in rolled.stderr
        assert "again" not in rolled.stdout  # as one thing is told
    for _ in range(2):  # each night, also after one that failed
        status, error = night()
        assert status == 1
        assert f"would bring back: {told}; change it there, or" in error
        assert "run once with --ignore-rollback" in error
        assert f"would bring back: {told};" in invoke("plan").stderr
    change(made, "threshold = 0.5", "")
    status, error = night()
    assert status == 1
    assert f"would bring back: cache_size 2 (line {places[0]});" in error
    change(made, "cache_size = 2", "cache_size = 3")  # of their own will
    assert night() == done_with("cache size 1000 to 3")
    assert require_manifest(made / "warehouse").settings["cache_size"] == 3


def test_what_the_next_run_finds_is_without_what_the_project_excludes(made: Path) -> None:
    for name in ("bad", "new"):
        write_jsonl(made / "archive" / f"{name}.jsonl", [trace(id=name)])
    change(made, "# exclude = []", 'exclude = ["bad.jsonl"]')
    change(made, "# cache_size = 1000", "cache_size = 2")
    assert night() == done_with("cache size 1000 to 2")
    looked = invoke("rollback", "previous", "--dry-run").stdout
    assert f"next run   new: {made}/archive/new.jsonl" in looked
    assert f"new: {made}/archive/bad.jsonl" not in looked
    assert f"next run   excluded: {made}/archive/bad.jsonl" in looked


def test_what_is_accepted_is_right_from_then_on(made: Path) -> None:
    weights = "complexity = 1\nnovelty = 0\ntool_diversity = 0\noutcome_confidence = 0"
    change(made, "[audits.no_domain_shifts]", f"[profiles.code]\n{weights}\n[audits.shifts]")
    changed = done_with(
        "weights of code: complexity 0.2 to 1, novelty 0.3 to 0, tool_diversity 0.3 to 0, "
        "outcome_confidence 0.2 to 0",
        "audit no_domain_shifts gone",
        "audit shifts new",
    )
    assert night() == changed
    rolled = invoke("rollback", "previous")
    places = ["audit of no_domain_shifts (which it leaves out)", "audit of shifts (line "]
    assert all(place in rolled.stderr for place in ("weights of code (line ", *places))
    assert night()[0] == 1
    assert night("--ignore-rollback") == changed
    assert night() == (0, "")


def test_settings_tell_where_each_comes_from(made: Path) -> None:
    change(made, "# cache_size = 1000", "cache_size = 2")
    told = {each["name"]: each for each in json.loads(invoke("settings", "--json").stdout)}
    [first] = json.loads(invoke("runs", "--json").stdout)
    assert told["cache_size"] == {
        "name": "cache_size",
        "value": 2,
        "run_id": None,
        "source": "project",
    }
    assert (told["embedder"]["source"], told["embedder"]["run_id"]) == ("project", first["run_id"])
    assert (told["ttl"]["source"], told["ttl"]["run_id"]) == ("default", first["run_id"])
    assert told["weights of code"]["source"] == "default"
    assert told["audit few_copies"]["source"] == "project"


def test_settings_of_another_warehouse_are_those_that_a_run_would_take_into_it(
    made: Path, tmp_path: Path
) -> None:
    words = ["--warehouse", tmp_path / "w"]
    own = [made / "archive", "--embedder", "none", "--no-prefect", "--project", "/dev/null"]
    assert invoke("run", *words, *own).returncode == 0
    assert invoke("settings").stderr == ""
    done = invoke("settings", "--json", *words)
    told = {each["name"]: each for each in json.loads(done.stdout)}
    assert (told["embedder"]["value"], told["embedder"]["run_id"]) == ("hashing", None)
    assert f"{tmp_path}/w uses the settings of kp_batch.toml, which is for another" in done.stderr


def test_without_a_project_an_archive_left_out_is_that_of_the_last_run(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    asked = ("run", "--warehouse", warehouse, "--embedder", "none", "--no-prefect")
    done = invoke(*asked)
    assert (done.returncode, "no archive is given" in done.stderr) == (1, True)
    write_jsonl(tmp_path / "archive" / "a.jsonl", [trace(id="a")])
    assert invoke("run", tmp_path / "archive", *asked[1:]).returncode == 0
    again = invoke(*asked)
    assert "nothing to do: 1 score is up to date" in again.stdout
    assert again.returncode == 0


def test_a_project_that_names_no_archive_says_so_and_makes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kp_batch.toml").write_text('warehouse = "w"\n[settings]\nembedder = "none"\n')
    for words in (["run", "--no-prefect"], ["plan"]):
        done = invoke(*words)
        assert done.returncode == 1
        told = "no archive is given: kp_batch.toml names none; add a line before its tables: "
        assert f'{told}archive = ["ARCHIVE"]\n' in done.stderr
    assert not (tmp_path / "w" / "manifest.json").exists()


@pytest.mark.telling
def test_an_archive_taken_out_of_the_file_is_not_that_of_the_last_run(
    made: Path, tmp_path: Path
) -> None:
    change(made, '\narchive = ["archive"]', "")
    told = f'kp_batch.toml names none; add a line before its tables: archive = ["{made}/archive"] ('
    for words in (["run", "--no-prefect"], ["run", "--no-prefect", "--preview"], ["plan"]):
        done = invoke(*words)
        assert (done.returncode, told in done.stderr) == (1, True), (words, done.stderr)
    assert invoke("plan", "archive").returncode == 0
    assert invoke("plan", "--warehouse", tmp_path / "new").returncode == 1


def test_the_imports_of_a_file_are_made(made: Path) -> None:
    for name in "ab":
        write_json(made / f"source-{name}" / "x.json", kp_trace(name))
    entries = [f"[[imports]]\nsources = ['source-{name}']\narchive = 'to-{name}'" for name in "ab"]
    file = made / "kp_batch.toml"
    file.write_text("\n".join([file.read_text("utf-8"), *entries]), "utf-8")
    done = invoke("import", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 2
    assert [len([*(made / f"to-{name}").glob("*.parquet")]) for name in "ab"] == [1, 1]
    change(made, "sources = ['source-b']", "sources = []")
    assert "the settings of import 2 have faults: --sources is empty" in invoke("import").stderr
    change(made, "archive = 'to-a'", "archive = 3")
    assert "import 1 have faults: --archive must be a text, got 3" in invoke("import").stderr


@pytest.mark.usefixtures("made")
def test_a_command_reads_the_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def loads(text: str) -> dict[str, object]:
        read.append(text)
        return tomllib.loads(text)

    monkeypatch.setattr("kp_batch.files.tomllib", SimpleNamespace(loads=loads))
    for words in (
        ["run", "--no-prefect"],
        ["plan"],
        ["settings"],
        ["status"],
        ["rollback", "latest"],
    ):
        read.clear()
        assert (invoke(*words).returncode, len(read)) == (0, 1), words


@pytest.mark.telling
def test_a_fault_of_a_table_ends_what_needs_that_table_and_nothing_else(made: Path) -> None:
    change(made, "# cache_size = 1000", "cache_size = 2")
    assert night() == done_with("cache size 1000 to 2")
    change(made, "max_gone", "max_gon")
    words = "[limits] has no key 'max_gon', did you mean 'max_gone'?"
    for command in (["plan"], ["settings"], ["import"], ["run", "--no-prefect"]):
        done = invoke(*command)
        assert (done.returncode, words in done.stderr) == (1, True), command
    for command in (["sql", "FROM scores"], ["runs"], ["audit"]):
        done = invoke(*command)
        assert (done.returncode, done.stderr) == (0, ""), command
    told = json.loads(invoke("status", "--json").stdout)["last_run"]
    assert (told["status"], told["code"], words in told["reason"]) == ("refused", "settings", True)
    rolled = invoke("rollback", "previous")
    assert rolled.returncode == 0
    assert words in rolled.stderr
    assert "it is unknown whether the project would bring back" in rolled.stderr
    change(made, "\narchive = ", "\nlimit = 3\narchive = ")
    for command in (["runs"], ["status"]):
        done = invoke(*command)
        assert (done.returncode, "has 2 faults: there is no key" in done.stderr) == (1, True)


def test_a_fault_leaves_no_mark_in_another_warehouse(made: Path) -> None:
    before = contents(made / "warehouse")
    change(made, "# cache_size = 1000", "cache_size = 0")
    change(made, 'warehouse_id = "', 'warehouse_id = "x')
    assert "cache_size must be at least 1" in night()[1]
    assert contents(made / "warehouse") == before


@pytest.mark.usefixtures("made")
def test_a_project_without_imports_is_reported() -> None:
    done = invoke("import")
    assert done.returncode == 1
    assert "kp_batch.toml has no [[imports]]; add some, or name" in done.stderr


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["-o", "to"], "argument 'FORMAT SOURCE...'"),
        (["--max-refused", "5"], "argument 'FORMAT SOURCE...'"),
        (["otlp", "a.json"], "option '-o' / '--output'"),
    ],
)
def test_half_of_an_import_is_none_of_the_project(words: list[str], missing: str) -> None:
    done = invoke("import", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Missing {missing}." in done.stderr
