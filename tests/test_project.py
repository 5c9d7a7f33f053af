"""The file of a project: its form, its faults, and what it makes of a run's settings."""

import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kp_batch.config import RescoreConfig, defaults, read_project
from kp_batch.errors import IdentityError, KpBatchError
from kp_batch.operations.init import begin_project, deploy_project
from kp_batch.operations.preview import preview
from kp_batch.pipeline.rescore import rescore_and_report, rescore_archive
from kp_batch.project import load_project
from kp_batch.runs.rolled_back import bringing_back
from kp_batch.scoring.profiles import load_profiles
from kp_batch.settings import TABLES
from kp_batch.warehouse.audits import load_audits
from kp_batch.warehouse.reasons import Reason
from tests.support import ROOT
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke

# What is of one command alone, or stands before all tables.
ELSEWHERE = {
    *("project", "archive", "warehouse", "warehouse_id", "profiles", "audits"),
    *("preview", "restore_vectors", "output", "allow_audit", "ignore_rollback", "note"),
}
WEIGHTS = {"complexity": 0.1, "novelty": 0.2, "tool_diversity": 0.3, "outcome_confidence": 0.4}


def written(folder: Path, text: str) -> Path:
    file = folder / "kp_batch.toml"
    file.write_text(text, "utf-8")
    return file


def of(file: Path, **given: Any) -> RescoreConfig:
    return RescoreConfig.model_validate({"project": file, **given})


def test_each_setting_of_a_run_has_its_table() -> None:
    keys = [key for table in TABLES.values() for key in table.model_fields]
    assert sorted(keys) == sorted(RescoreConfig.model_fields.keys() - ELSEWHERE), (
        "a setting of a run is in a table of kp_batch.toml, or in ELSEWHERE"
    )


def test_what_a_file_leaves_out_has_its_default(tmp_path: Path) -> None:
    file = written(tmp_path, 'archive = "a"\nwarehouse = "w"\n[settings]\ncache_size = 7\n')
    config = of(file)
    assert config.settings == defaults() | {"cache_size": 7}
    assert config.with_defaults({"cache_size": 9, "ttl": "1h"}) == config


def test_options_take_precedence_over_a_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'warehouse = "w"\narchive = ["a", "b"]\nwarehouse_id = "x"\n[run]\nprune = true\n'
        "[limits]\nmax_gone = 0\n[settings]\ncache_size = 7\n",
    )
    config = of(file, archive=["c"], cache_size=8, prune=False, max_gone="5%")
    assert (config.archive, config.cache_size, config.prune) == (("c",), 8, False)
    assert (config.max_gone, config.warehouse_id) == ("5%", "x")


def test_nulls_and_empty_lists_of_a_form_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, 'warehouse = "w"\narchive = "a"\n[settings]\nttl = "2h"\n')
    config = of(file, archive=[], warehouse=None, ttl=None, exclude=[])
    assert config == of(file)


def test_another_warehouse_has_the_settings_and_not_the_id(tmp_path: Path) -> None:
    file = written(tmp_path, 'warehouse = "w"\nwarehouse_id = "x"\n[settings]\ncache_size = 7\n')
    same, scratch = of(file, warehouse=tmp_path / "w"), of(file, warehouse=tmp_path / "scratch")
    assert (same.warehouse_id, scratch.warehouse_id) == ("x", None)
    assert scratch.cache_size == 7


def test_paths_start_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p" / "model").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    text = """
archive = ["traces/*.parquet", "/mnt/a", "s3://bucket/a"]
warehouse = "../w"
[settings]
embedder = "model"
[[imports]]
sources = ["spans", "s3://bucket/spans"]
archive = "traces"
rules = "rules.toml"
"""
    file = written(tmp_path / "p", text)
    monkeypatch.chdir(tmp_path / "elsewhere")
    project = load_project(file)
    archive = [Path(path).resolve() for path in project.values["archive"][:2]]
    assert archive == [tmp_path / "p" / "traces" / "*.parquet", Path("/mnt/a")]
    assert project.values["archive"][2] == "s3://bucket/a"
    assert of(file).warehouse.resolve() == tmp_path / "w"
    assert Path(of(file).embedder) == tmp_path / "p" / "model"
    [entry] = project.imports
    sources = [Path(entry["sources"][0]).resolve(), entry["sources"][1]]
    assert sources == [tmp_path / "p" / "spans", "s3://bucket/spans"]
    assert Path(entry["rules"]).resolve() == tmp_path / "p" / "rules.toml"
    monkeypatch.chdir(tmp_path / "p")
    assert load_project(Path("kp_batch.toml")).values["archive"][0] == "traces/*.parquet"


def test_profiles_are_laid_over_the_built_in_ones(tmp_path: Path) -> None:
    own = "\n".join(f"{name} = {value}" for name, value in WEIGHTS.items())
    profiles = of(written(tmp_path, f'warehouse = "w"\n[profiles.code]\n{own}\n')).profiles
    assert profiles.as_json() == load_profiles().as_json() | {"code": WEIGHTS}


FAULTS = {
    "cashe_size = 1": "there is no key 'cashe_size'",
    "[settings]\ncashe_size = 1": "[settings] has no key 'cashe_size', did you mean 'cache_size'?",
    "[limits]\nmax_lost = 1": "[limits] has no key 'max_lost'",
    "[settings]\ncache_size = 0": "[settings] cache_size must be at least 1, got 0",
    "[settings]\ncache_size = '9'": "[settings] cache_size must be a whole number, got '9'",
    "[settings]\nttl = 'soon'": "[settings] ttl",
    "[limits]\nmax_gone = 'many'": "[limits] max_gone: a limit must be",
    "settings = 3": "[settings] must be a table, got 3",
    "archive = 3": "archive must be a path or a list of paths, got 3",
    "archive = ['a', 3]": "archive must be a path or a list of paths, got ['a', 3]",
    "warehouse_id = 7": "warehouse_id must be a text, got 7",
    "imports = 'x'": "imports must be a list, got 'x'",
    "[profiles.code]\nnovelty = 1": "[profiles] of the project file ",
    "[audits.a]\nsgl = 'x'": "kp_batch.toml has 2 faults: a has no key 'sgl', did you mean 'sql'?",
    "audits = 3": "[audits] of the project file ",
    "archive = [": "cannot be read: ",
    "archive = ''": "archive is empty",
    "warehouse = ''": "warehouse is empty",
    "[settings]\nembedder = ''": "embedder is empty",
    "[settings]\nttl = 7": "[settings] ttl: a duration must be a text such as 90m, got 7",
    "[limits]\ntimeout = 4": "[limits] timeout: a duration must be a text such as 90m, got 4",
    "[settings]\nsince = '2026'": "[settings] has no key 'since'",
}


def test_keys_before_the_tables_are_read_even_if_these_are_wrong(tmp_path: Path) -> None:
    file = written(tmp_path, 'warehouse = "w"\nwarehouse_id = "x"\n[limits]\nmax_lost = 1\n')
    project = load_project(file)
    assert (project.warehouse, project.warehouse_id) == (str(tmp_path / "w"), "x")
    assert project.is_of(tmp_path / "w")
    for name in ("values", "imports"):
        with pytest.raises(KpBatchError, match="no key 'max_lost'"):
            getattr(project, name)


def test_all_faults_are_reported_if_one_is_before_the_tables(tmp_path: Path) -> None:
    words = (
        r"has 3 faults: there is no key 'wharehouse'.*; \[settings\] must be a .* no key 'max_lost'"
    )
    file = written(tmp_path, "wharehouse = 'w'\nsettings = 3\n[limits]\nmax_lost = 1\n")
    with pytest.raises(KpBatchError, match=words):
        load_project(file)


def test_what_is_no_path_names_no_project() -> None:
    with pytest.raises(KpBatchError, match="--project must be a path, got 3"):
        RescoreConfig.read({"project": 3, "warehouse": "w"})


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_reported_with_its_place(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(KpBatchError) as caught:
        read_project(file)
    assert FAULTS[text] in str(caught.value)
    assert "kp_batch.toml" in str(caught.value)


def test_weights_that_do_not_sum_to_1_name_the_file(tmp_path: Path) -> None:
    own = "\n".join(f"{name} = 0.2" for name in WEIGHTS)
    with pytest.raises(KpBatchError, match=r"kp_batch\.toml has 1 fault: .*0\.8"):
        read_project(written(tmp_path, f"[profiles.code]\n{own}\n"))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(KpBatchError, match=r"none\.toml cannot be read: No such file"):
        of(tmp_path / "none.toml")


def test_the_line_of_each_setting_is_found(tmp_path: Path) -> None:
    text = """warehouse = "w"
run.exclude = [
  'cache_size',
]
[ limits ] # those
max_gone = 0
[settings]
# cache_size = 5
cache_size=6
[profiles.code]
WEIGHTS
[[profiles."x y"]]
WEIGHTS
[audits]
b.sql = 'a'
[audits.a]
sql = 'SELECT 1'
"""
    project = load_project(written(tmp_path, text.replace("WEIGHTS", _weights())))
    places = [project.place(name) for name in ("cache_size", "max_gone", "exclude")]
    assert places == ["line 9", "line 6", "line 2"]
    assert [project.place("profiles", name) for name in ("code", "x y")] == ["line 10", "line 15"]
    assert project.place("audits", "a") == "line 22"
    assert [project.place("ttl"), project.place("audits", "c")] == ["[settings] ttl", "[audits.c]"]


def test_a_setting_whose_line_is_not_found_is_named_by_its_place(tmp_path: Path) -> None:
    text = 'warehouse = "w"\n[settings]\n"cache\\u005fsize" = 2\n'
    undone = [Reason("cache_size", "", 2, 1_000)]
    lines = bringing_back(of(written(tmp_path, text)), defaults(), undone)
    assert lines == ["cache_size 2 ([settings] cache_size)"]


def _weights() -> str:
    return "\n".join(f"{name} = {value}" for name, value in WEIGHTS.items())


@pytest.mark.slow
@pytest.mark.telling
def test_init_writes_what_is_given_and_explains_all_else(tmp_path: Path) -> None:
    given = {"archive": ["a"], "embedder": "hashing", "max_gone": "5%", "exclude": ["*.tmp"]}
    config = RescoreConfig.model_validate({**given, "warehouse": tmp_path / "w"})
    file = tmp_path / "kp_batch.toml"
    warehouse_id = begin_project(config, file)
    written_config = of(file)
    assert written_config.settings == config.settings | {"audits": _ready_audits()}
    assert (written_config.max_gone, written_config.exclude) == ("5%", ("*.tmp",))
    assert written_config.report
    limits = [getattr(written_config, name) for name in TABLES["limits"].model_fields]
    assert limits == ["5%", "0", "5%", "0", "5%", None]
    assert written_config.warehouse_id == warehouse_id
    text = file.read_text("utf-8")
    for model in TABLES.values():
        for name in model.model_fields:
            assert f"\n{name} = " in text or f"\n# {name} = " in text
    with pytest.raises(KpBatchError, match=r"kp_batch\.toml already exists"):
        begin_project(config, file)
    again = tmp_path / "again.toml"  # of a warehouse that is there
    assert begin_project(config, again) == warehouse_id


@pytest.mark.slow
@pytest.mark.parametrize("name", ["📈 trading", "a\x7fb", 'a"]b', "é.ü"])
def test_init_writes_any_name_that_profiles_have(tmp_path: Path, name: str) -> None:
    weights = {name: WEIGHTS, "dated": [WEIGHTS, {"from": "2026-01-02", **WEIGHTS}]}
    given = {"archive": [f"{name}.jsonl"], "warehouse": tmp_path / "w", "profiles": weights}
    begin_project(RescoreConfig.model_validate(given), tmp_path / "kp_batch.toml")
    written_config = of(tmp_path / "kp_batch.toml")
    assert written_config.profiles.as_json().items() >= weights.items()
    assert Path(written_config.archive[0]).name == f"{name}.jsonl"


def test_init_takes_no_setting_that_a_file_does_not_have(tmp_path: Path) -> None:
    words = ("a", "-o", tmp_path / "p.toml", "--warehouse", tmp_path / "w", "--restore-vectors")
    refused = invoke("init", *words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "No such option" in refused.stderr


@pytest.mark.slow
@pytest.mark.telling
def test_init_writes_what_deploys_it_and_overwrites_nothing(tmp_path: Path) -> None:
    config = RescoreConfig.model_validate({"archive": ["a"], "warehouse": tmp_path / "w"})
    there = tmp_path / "there" / "prefect.yaml"
    there.parent.mkdir()
    there.write_text("mine")
    with pytest.raises(KpBatchError, match=r"prefect\.yaml already exists; leave out --prefect"):
        begin_project(config, there.with_name("kp_batch.toml"), prefect=True)
    assert [*there.parent.iterdir()] == [there]
    begin_project(config, tmp_path / "its own.toml", prefect=True)
    text = (tmp_path / "prefect.yaml").read_text("utf-8")
    assert text.count('project: "its own.toml"') == 2
    assert "kp_batch.toml" not in text
    (tmp_path / "prefect.yaml").unlink()
    deploy_project(tmp_path / "its own.toml")
    assert (tmp_path / "prefect.yaml").read_text("utf-8") == text


def test_the_flows_that_are_deployed_are_public() -> None:
    deployed = (ROOT / "kp_batch" / "operations" / "prefect.yaml").read_text("utf-8")
    names = re.findall(r"entrypoint: (.+)", deployed)
    page = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    assert names == ["kp_batch.flows.rescore", "kp_batch.flows.import_and_rescore"]
    assert all(f"`{name}`" in page for name in names)


@pytest.mark.slow
def test_each_line_that_init_writes_as_a_comment_can_be_taken_in(tmp_path: Path) -> None:
    config = RescoreConfig.model_validate({"archive": ["a"], "warehouse": tmp_path / "w"})
    begin_project(config, tmp_path / "kp_batch.toml")
    lines = (tmp_path / "kp_batch.toml").read_text("utf-8").split("\n")
    keys = [key for table in TABLES.values() for key in table.model_fields]
    for number, line in enumerate(lines):
        name = line.removeprefix("# ").partition(" = ")[0]
        if line.startswith("# ") and name in keys:
            taken = [*lines[:number], line.removeprefix("# "), *lines[number + 1 :]]
            file = tmp_path / "taken.toml"
            file.write_text("\n".join(taken), "utf-8")
            assert of(file).settings == of(tmp_path / "kp_batch.toml").settings


def _ready_audits() -> dict[str, Any]:
    return load_audits(Path(__file__).parent.parent / "data" / "audits.toml").as_json()


def test_what_a_project_does_to_its_own_traces_is_not_done_to_another_warehouse(
    tmp_path: Path,
) -> None:
    text = 'warehouse = "w"\narchive = "a"\n[run]\nprune = true\nkeep = "30d"\nexclude = ["x"]\n'
    file = written(tmp_path, text)
    own, other = of(file), of(file, warehouse=tmp_path / "other")
    assert (own.prune, own.exclude, len(own.archive)) == (True, ("x",), 1)
    assert (other.prune, other.exclude, other.archive) == (False, (), ())
    assert (own.keep, other.keep) == (timedelta(days=30), None)


def test_a_link_in_a_path_leads_where_the_system_says(tmp_path: Path) -> None:
    for name in ("right/deep", "wrong"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "wrong" / "link").symlink_to(tmp_path / "right" / "deep")
    written(tmp_path / "right" / "deep", 'archive = "../a"\nwarehouse = "~/w"\n')
    values = load_project(tmp_path / "wrong" / "link" / "kp_batch.toml").values
    assert Path(values["archive"][0]).resolve() == tmp_path / "right" / "a"
    assert values["warehouse"] == str(Path("~/w").expanduser())


@pytest.mark.parametrize(
    ("of_file", "given", "seconds"),
    [
        ("wait = true", {}, math.inf),
        ("wait = false", {}, 0),
        ("wait = '1h'", {}, 3_600),
        ("wait = '1h'", {"wait": True}, math.inf),
        ("wait = '1h'", {"wait": False}, 0),
        ("wait = true", {"wait": "5m"}, 300),
    ],
)
def test_how_long_another_run_is_waited_for(
    tmp_path: Path, of_file: str, given: dict[str, Any], seconds: float
) -> None:
    file = written(tmp_path, f'warehouse = "w"\n[run]\n{of_file}\n')
    assert of(file, **given).wait_s == seconds


def test_a_model_of_a_built_in_name_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "minilm").mkdir()
    file = written(tmp_path, 'warehouse = "w"\n[settings]\nembedder = "minilm"\n')
    assert of(file).embedder == "minilm"


@pytest.mark.slow
def test_init_refuses_settings_that_no_file_can_have(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a" / "a.jsonl", [trace(id="a")])
    given: dict[str, Any] = {"archive": (str(tmp_path / "a"),), "warehouse": tmp_path / "w"}
    profiles = {"default": {**WEIGHTS}}  # without the built-in ones, which a file always has
    rescore_archive(
        RescoreConfig.model_validate({**given, "embedder": "none", "profiles": profiles})
    )
    with pytest.raises(
        KpBatchError, match=("settings that no project file can hold: weights of code: new")
    ):
        begin_project(RescoreConfig.model_validate(given), tmp_path / "kp_batch.toml")
    assert not (tmp_path / "kp_batch.toml").exists()


@pytest.mark.parametrize("run", [rescore_and_report, preview])
def test_what_runs_under_prefect_makes_nothing_where_the_warehouse_is_not(
    tmp_path: Path, run: Callable[[RescoreConfig], object]
) -> None:
    warehouse = tmp_path / "w"
    config = RescoreConfig(archive=("a",), warehouse=warehouse, warehouse_id="x", embedder="none")
    with pytest.raises(IdentityError, match="contains no warehouse"):
        run(config)
    assert not warehouse.exists()
