"""When a run is a Prefect flow: where Prefect is configured, as Prefect itself has it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kp_batch.start import configured_api
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke, kp_batch

pytestmark = pytest.mark.process

NOBODY = "http://127.0.0.1:9/api"  # where no server answers
PROFILES = f"""
active = "remote"
[profiles.remote]
PREFECT_API_URL = "{NOBODY}"
[profiles.local]
PREFECT_LOGGING_LEVEL = "INFO"
"""
ASK_PREFECT = """
import json, os, sys
from prefect.context import root_settings_context  # what Prefect makes when it is imported
before, urls = dict(os.environ), []
for variables in map(json.loads, sys.argv[1:]):
    os.environ.clear()
    os.environ.update(before | variables)
    urls.append(root_settings_context().settings.api.url)
print(json.dumps(urls))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "profiles.toml").write_text(PROFILES)
    return tmp_path


@pytest.mark.prefect
def test_the_server_is_the_one_that_prefect_would_use(home: Path, tmp_path: Path) -> None:
    nobody = {"HOME": str(tmp_path / "nobody's")}
    urls: dict[str, str | None] = {}
    for variables, url in (
        ({}, None),
        ({"PREFECT_API_URL": "http://127.0.0.1:8/api"}, "http://127.0.0.1:8/api"),
        ({"PREFECT_HOME": str(home)}, NOBODY),
        ({"PREFECT_PROFILES_PATH": str(home / "profiles.toml")}, NOBODY),
        ({"PREFECT_HOME": str(home), "PREFECT_PROFILE": "local"}, None),
        ({"PREFECT_HOME": str(home), "PREFECT_API_URL": "http://h/api"}, "http://h/api"),
    ):
        assert configured_api(nobody | variables) == url, variables
        urls[json.dumps(variables)] = url
    done = subprocess.run(
        [sys.executable, "-c", ASK_PREFECT, *urls],
        env=nobody,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(zip(urls, json.loads(done.stdout), strict=True)) == urls


@pytest.mark.prefect
@pytest.mark.parametrize(("own", "expected"), [({}, None), ({"PREFECT_HOME": "home"}, "local")])
def test_a_profile_in_a_warehouse_names_no_server(
    home: Path, tmp_path: Path, own: dict[str, str], expected: str | None
) -> None:
    """A user's own folder, which names none, stays theirs."""
    (home / "profiles.toml").write_text(PROFILES)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "profiles.toml").write_text('active = "local"\n[profiles.local]\n')
    variables = {name: str(mine) for name in own}
    ask = (
        "import sys; from pathlib import Path\n"
        "from kp_batch.start import prepare_prefect\n"
        "prepare_prefect(Path(sys.argv[1]))\n"
        "from prefect.settings import get_current_settings as s\n"
        "from prefect.context import get_settings_context as c\n"
        "print(s().api.url, c().profile.name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask, str(home)],
        env={"HOME": str(tmp_path / "nobody's"), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    url, name = done.stdout.split()
    assert url == "None"
    assert expected in {None, name}


@pytest.mark.telling
@pytest.mark.parametrize("content", ["active = ", "active = 1", "[profiles]\nremote = 1", ""])
def test_profiles_that_cannot_be_used_configure_nothing(home: Path, content: str) -> None:
    (home / "profiles.toml").write_text(content)
    assert configured_api({"PREFECT_HOME": str(home)}) is None


@pytest.mark.telling
@pytest.mark.prefect
def test_a_run_is_a_flow_where_a_profile_names_a_server_and_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(home))
    archive = write_jsonl(home / "a.jsonl", [trace()])
    run = ["run", archive, "--warehouse", home / "wh", "--embedder", "none"]
    flow = kp_batch(*run)
    assert flow.returncode == 1
    first, *_, last = flow.stderr.splitlines()
    assert first == f"kp-batch: running as a Prefect flow on {NOBODY}"
    assert "Failed to reach API" in last
    assert last.endswith("start that Prefect server, or run with --no-prefect")
    assert not (home / "wh" / "scores").exists()
    plain = invoke(*run, "--no-prefect")
    assert plain.returncode == 0, plain.stderr
    assert "Prefect" not in plain.stderr
