"""A project that `init` makes, and its nights: in this process, or as cron starts them."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from kp_batch.warehouse.bucket.location import folder_of
from kp_batch.warehouse.last_run import LastRuns
from tests.support.make.archives import trace, write_jsonl
from tests.support.processes.commands import invoke, until
from tests.support.read.schemas import schema_of

NIGHT = ("run", "--quiet", "--json", "--no-report")
LONG_AUDIT = """
[audits.long]
sql = "SELECT 1 FROM range(1000000000) a, range(1000000000) b WHERE hash(a.range, b.range) = 1"
"""
Done = subprocess.CompletedProcess[str]


class Ended(NamedTuple):
    """How a night ended."""

    exit_status: int
    printed: dict[str, Any]  # the one object on stdout
    err: str

    @classmethod
    def of(cls, exit_status: int, out: str, err: str) -> "Ended":
        """Check that stdout has one object of its schema, whose reason ends stderr."""
        [printed] = map(json.loads, out.splitlines())
        _validator("run").validate(printed)
        if printed["reason"]:
            assert printed["reason"] in err.splitlines()[-1]
        return cls(exit_status, printed, err)

    @property
    def how(self) -> tuple[int, str, str | None]:
        return self.exit_status, self.printed["status"], self.printed["code"]


@dataclass
class Project:
    """A project in its folder, as one machine has it."""

    folder: Path
    place: str = "warehouse"  # of the tables: a folder below, or a URL in a bucket
    environment: dict[str, str] = field(default_factory=dict)  # what cron has besides

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def file(self) -> Path:
        return self.folder / "kp_batch.toml"

    def make(self) -> None:
        """Let init make it of its archive, with a good night, and without the ready audits."""
        words = ("archive", "--warehouse", self.place, "--embedder", "hashing")
        begun = self.command("init", *words)
        assert begun.returncode == 0, begun.stderr
        settings, audits, _ = self.file.read_text("utf-8").partition("# Audits: ")
        assert audits
        self.file.write_text(settings, "utf-8")  # they take half of a night
        night = self.night()
        assert (night.how, night.err) == ((0, "done", None), "")

    @property
    def tables(self) -> Path:
        """The folder of the warehouse, or of its copy."""
        with self.here():
            return Path(folder_of(self.place)).absolute()

    @contextmanager
    def here(self) -> Generator[None]:
        """Be in its folder, on its machine."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.delenv("KP_BATCH_WAREHOUSE", raising=False)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            yield

    def command(self, *words: object) -> Done:
        with self.here():
            return invoke(*words)

    def night(self, *options: object) -> Ended:
        """A night in this process."""
        done = self.command(*NIGHT, "--no-prefect", *options)
        return Ended.of(done.returncode, done.stdout, done.stderr)

    def night_by_cron(self, *options: object, by: Sequence[str] = (), **more: str) -> Ended:
        process = self.started(*NIGHT, "--timeout", "60s", *options, by=by, **more)
        out, err = process.communicate(timeout=120)
        return Ended.of(process.returncode, out, err)

    def started(
        self, *words: object, by: Sequence[str] = (), closed: str = "<&-", **more: str
    ) -> "subprocess.Popen[str]":
        """A command as cron starts it: no home, no terminal, no stdin, hardly any environment."""
        program = [sys.executable, "-P", "-m", "kp_batch", *map(str, words)]
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        return subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *by, *program],
            cwd=self.folder,
            env={"PATH": os.defpath, "LANG": "C", **aws, **self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="ascii",
            start_new_session=True,
        )

    @contextmanager
    def auditing(self) -> Generator["subprocess.Popen[str]"]:
        """A night by cron at a step that lasts for hours; the file is then as it was."""
        text = self.file.read_text("utf-8")
        self.add(LONG_AUDIT)
        process = self.started(*NIGHT)
        try:
            until(lambda: (run := self.mark().last_run) and run.step == "audit", 60)
            self.file.write_text(text, "utf-8")
            yield process
        finally:
            process.kill()
            process.communicate()

    def mark(self) -> LastRuns:
        """What the last run left, as this machine has it."""
        return LastRuns.read(self.tables)

    def status(self, *options: object, exits: int = 0) -> dict[str, Any]:
        """What `status` says, which is of its schema."""
        done = self.command("status", "--json", *options)
        assert done.returncode == exits, done.stderr
        found = json.loads(done.stdout)
        _validator("status").validate(found)
        return found

    def last_run(self) -> tuple[str, str | None]:
        """How the last run ended, by `status`, for which it is never too late here."""
        last = self.status("--max-age", "26h")["last_run"]
        return last["status"], last["code"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        return json.loads(self.command("sql", query, "--json").stdout)

    def scores(self) -> list[dict[str, Any]]:
        columns = "trace_id, score, novelty, text_hash, source_file"
        return self.ask(f"SELECT {columns} FROM scores ORDER BY ALL")

    def write(self, name: str, *, good: int, bad: int = 0) -> None:
        """Write a file of so many traces and faulty rows."""
        rows = [trace(id=f"{name}-{n:02d}", objective=f"do {name} {n}") for n in range(good)]
        faulty = [trace(id=f"{name}-bad-{number}", steps=[]) for number in range(bad)]
        write_jsonl(self.archive / f"{name}.jsonl", [*rows, *faulty])

    def add(self, text: str) -> None:
        """Add to its file."""
        self.file.write_text(self.file.read_text("utf-8") + text, "utf-8")

    def change(self, old: str, new: str) -> None:
        """Change its file."""
        text = self.file.read_text("utf-8")
        assert old in text
        self.file.write_text(text.replace(old, new, 1), "utf-8")


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(name))
