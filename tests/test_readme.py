"""Every command that the README shows is run, in its order; the make targets are looked at."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.archives import trace, write_jsonl
from tests.buckets import fill, make_bucket

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
# What starts a server has a test of its own.
BLOCKS = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    if not any(each in block for each in ("prefect server", "ray start", "s3://"))
]


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def words(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))


@pytest.mark.model
@pytest.mark.prefect
def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "data").symlink_to(ROOT / "data")
    write_jsonl(tmp_path / "trace.json", [trace()])
    made, *shown = BLOCKS
    assert re.findall(r"^(\S+ \S+)", made, re.MULTILINE) == ["make demo", "make test"]
    for block in shown:
        done = shell(f". .venv/bin/activate\n{block}", tmp_path)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.model
@pytest.mark.prefect
def test_the_demo_scores_the_sample_and_answers_questions(tmp_path: Path) -> None:
    done = shell(f"{sys.executable} -m kp_batch demo", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "600 traces scored" in done.stdout
    questions = re.findall(r"^[A-Z].*\?$", done.stdout, re.MULTILINE)
    assert len(questions) == 3
    assert f"\n{done.stdout[done.stdout.index(questions[0]) :]}```\n" in README
    drawn = tmp_path / "drawn.svg"
    made = shell(
        f"{sys.executable} -m tests.picture {tmp_path}/kp-batch-demo/warehouse {drawn}", ROOT
    )
    assert made.returncode == 0, made.stderr
    [shown] = re.findall(r"\((data/.*\.svg)\)", README)
    assert words(drawn) == words(ROOT / shown)


def test_the_make_targets_call_what_the_tests_run() -> None:
    for target, calls in (
        ("demo", ["kp-batch demo"]),
        ("test", ["ruff check", "ruff format --check", "pyright", "lint-imports", "pytest"]),
    ):
        plan = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert all(call in plan for call in calls), plan


def test_the_sample_archive_is_what_the_sample_command_makes(tmp_path: Path) -> None:
    from kp_batch.sample import write_sample

    paths = write_sample(tmp_path, traces=600, days=21, seed=7)
    shipped = sorted((ROOT / "data" / "sample").iterdir())
    assert [path.name for path in paths] == [path.name for path in shipped]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(paths, shipped, strict=True))


def test_the_tables_of_the_readme_are_the_views(tmp_path: Path) -> None:
    from kp_batch.warehouse.manifest import Manifest
    from kp_batch.warehouse.publication import publish
    from kp_batch.warehouse.reader import connect

    publish(tmp_path, Manifest({"threshold": 0.75}, {}))
    with connect(tmp_path) as connection:
        for view in ("scores", "rejects", "profiles", "runs", "files", "distributions"):
            described = connection.execute(f"DESCRIBE {view}").fetchall()
            [line] = re.findall(rf"^\| `{view}` \|.*$", README, re.MULTILINE)
            named = re.findall(r"`(\w+)`", line.split("|")[3])
            assert named == [column for column, *_ in described]


def test_the_commands_for_a_bucket_work(s3: str, tmp_path: Path) -> None:
    [block] = [
        each for each in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "s3://" in each
    ]
    fill(f"{make_bucket(s3, 'traces')}/archive", ROOT / "data" / "sample")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = block.replace("http://127.0.0.1:9000", s3)
    done = shell(f". .venv/bin/activate\n{script}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "600 traces scored" in done.stdout
    assert (tmp_path / "kp.duckdb").exists()


def test_the_readme_shows_what_an_import_tells(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(ROOT / "data")
    [command] = re.findall(r"^kp-batch (import otlp .*)$", README, re.MULTILINE)
    done = shell(f"{sys.executable} -m kp_batch {command}", tmp_path)
    assert f"```\n{done.stdout}```\n" in README
