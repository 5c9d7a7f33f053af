"""Who ran a run and their note stand in its row, and wherever a run is named."""

import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from kp_batch.config import RescoreConfig
from kp_batch.warehouse.author import current_user, parse_note, signed
from tests.support.make.runs import config, least, run_night, two_nights
from tests.support.processes.commands import invoke
from tests.support.read.queries import ask_rows

NOTE = "new\tweights,\n \x1b[31mas Ana asked"  # as somebody may have pasted it
KEPT = "new weights, \x1b[31mas Ana asked"
SHOWN = r"new weights, \x1b[31mas Ana asked"


def test_a_user_is_that_of_the_process_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def entry_of(uid: int) -> SimpleNamespace:
        asked.append(uid)
        return SimpleNamespace(pw_name="ana\udcff")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "somebody-else")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    monkeypatch.setattr(pwd, "getpwuid", entry_of)
    assert current_user() == "ana�"  # what no UTF-8 can hold is not stored as it is
    assert asked == [4711]


def test_a_user_without_an_entry_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 2**31 - 5)  # nobody has it
    assert current_user() == "2147483643"


def test_a_note_is_one_line_and_not_too_long() -> None:
    assert parse_note(NOTE) == KEPT
    assert parse_note(" \n") is None
    assert parse_note("x" * 200) == "x" * 200
    with pytest.raises(ValueError, match="a note has at most 200 characters, got 201"):
        parse_note("x" * 201)
    assert signed("ana", NOTE) == r"by ana: new\tweights,\n \x1b[31mas Ana asked"
    assert signed("1000", None) == "by 1000"


def test_a_note_is_a_field_of_the_flows_form() -> None:
    assert least(note=NOTE).note == KEPT
    assert least(note="").note is least(note=None).note is None
    with pytest.raises(ValueError, match="at most 200"):
        least(note="x" * 201)
    assert "default" not in RescoreConfig.model_json_schema()["properties"]["note"]


@pytest.mark.parametrize("command", [("forget", "x"), ("rollback", "latest"), ("run", "a")])
def test_a_note_that_is_too_long_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    refused = invoke(*command, "--warehouse", tmp_path / "w", "--note", "x" * 201)
    assert refused.returncode == 2
    assert "a note has at most 200 characters, got 201" in refused.stderr
    assert not (tmp_path / "w").exists()


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RescoreConfig:
    """Two nights, and a third one by Ana with a note."""
    two_nights(tmp_path)
    monkeypatch.setattr("kp_batch.pipeline.publish.current_user", lambda: "ana\x1b[1m")
    run_night(tmp_path, note=NOTE)
    return config(tmp_path, tmp_path / "archive")


def rows(settings: RescoreConfig) -> list[tuple[str, str]]:
    return ask_rows(settings.warehouse, 'SELECT "user", note FROM runs ORDER BY number')


@pytest.mark.slow
@pytest.mark.telling
def test_all_that_names_a_run_names_who_ran_it_and_their_note(nights: RescoreConfig) -> None:
    me, where = current_user(), ("--warehouse", nights.warehouse)
    assert rows(nights) == [(me, None), (me, None), ("ana\x1b[1m", KEPT)]
    assert ask_rows(nights.warehouse, "SELECT user FROM runs WHERE config LIKE '%Ana asked%'") == []
    by_ana = rf"by ana\x1b[1m: {SHOWN}"
    listed = invoke("runs", *where, "--format", "line").stdout
    assert r"ana\x1b[1m" in listed
    assert SHOWN in listed
    compared = invoke("compare", "previous", "latest", *where).stdout
    first, second, *_ = compared.splitlines()
    assert first.endswith(f"by {me}")
    assert second.endswith(by_ana)
    assert by_ana in invoke("explain", "kp:trace:2", *where).stdout
    report = invoke("report", *where, "--format", "markdown").stdout
    assert r"by `ana\x1b[1m`, ended " in report
    assert f"Its note: `{SHOWN}`." in report
    page = invoke("report", *where, "-o", "-").stdout
    assert r" by <bdi>ana\x1b[1m</bdi>, ended " in page
    assert f"Its note: <bdi>{SHOWN}</bdi>" in page


@pytest.mark.slow
def test_a_rollback_and_a_forget_have_notes_of_their_own(nights: RescoreConfig) -> None:
    where = ("--warehouse", nights.warehouse)
    for words in (("rollback", "previous"), ("forget", "kp:trace:1")):
        note = f"a {words[0]}"
        invoke(*words, *where, "--note", f"{note} that is not done", "--dry-run")
        assert invoke(*words, *where, "--note", note).returncode == 0
        assert rows(nights)[-1] == ("ana\x1b[1m", note)
    run_night(nights.warehouse.parent)
    assert rows(nights)[-1][1] is None
