"""Imports that are killed at random moments: part of `make torture`.

The source changes every night: spans come late, files are written anew, rules are others, and now
and then a newer version builds all of it again. After each kill the next import has to leave what
one leaves that was never killed, equal to the byte. Where the source changes before that import,
each trace has to stand in one day.
"""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.rules import Rules
from kp_batch.imports import importing
from kp_batch.imports.importing import import_traces
from tests.support.formats.shuffled_spans import SPANS, span_lines
from tests.support.imports.importing import imported

# An import alone, of the source, into the archive and by the rules that argv names; by several
# processes of all that is larger than argv says, and as the version that it says. In the
# transaction of the number that argv says it hangs, with most pages written and none committed.
_ALONE = """
import sys, time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from kp_batch.conversion.rules import Rules
from kp_batch.conversion.formats import FORMATS
from kp_batch.imports import importing
from kp_batch.imports.importing import import_traces
from kp_batch.imports.store import RecordStore
importing.MAX_SERIAL_BYTES, importing.IMPORTER = int(sys.argv[4]), int(sys.argv[5])
transaction, numbers = RecordStore.transaction, count(1)
@contextmanager
def hanging(store):
    store.connection.execute("PRAGMA cache_size = 1")
    with transaction(store):
        yield
        if next(numbers) == int(sys.argv[6]):
            print("within", flush=True)
            time.sleep(60)
RecordStore.transaction = hanging
print("begun", flush=True)
rules = Rules.from_json(sys.argv[3])
import_traces(FORMATS["otlp"], [sys.argv[1]], Path(sys.argv[2]), rules)
"""
_LONGEST_S = 0.4
_BEGINS_S = 1.0  # what several processes need to begin
_TRACES, _FILES = 60, 6


class KilledImports:
    """A source that changes, an archive whose imports are killed, and one whose never are."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.source = folder / "source"
        self.killed, self.never = folder / "killed", folder / "never"
        self.rules, self.importer = self._rules("code"), importing.IMPORTER
        self.source.mkdir()
        self.change()

    def change(self) -> None:
        """Write a file or two anew, of any spans; now and then with other rules."""
        for _ in range(self.random.choice([1, 2])):
            places = self.random.sample(range(_TRACES * SPANS), _TRACES * SPANS // _FILES)
            # The traces of more and more days, many of whose spans come with later nights.
            path = self.source / f"{self.random.randrange(_FILES)}.jsonl"
            path.write_text("".join(span_lines(places, minutes=600)), "utf-8")
        if self.random.random() < 0.2:
            self.rules = self._rules(self.random.choice(["code", "finance"]))
        self.importer += self.random.random() < 0.2

    def kill(self) -> bool:
        """Start an import and kill it after a while; whether it still ran then."""
        is_shared = self.random.random() < 0.3
        hangs = self.random.choice([0, 0, 1])  # in the transaction of this number
        arguments = [
            str(self.source),
            str(self.killed),
            self.rules.as_json(),
            f"{0 if is_shared else 1 << 30}",
            f"{self.importer}",
            f"{hangs}",
        ]
        with subprocess.Popen(
            [sys.executable, "-c", _ALONE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as alone:
            assert alone.stdout
            alone.stdout.readline()
            if hangs:
                alone.stdout.readline()
            else:
                time.sleep(self.random.uniform(0, _LONGEST_S + is_shared * _BEGINS_S))
            alone.send_signal(signal.SIGKILL)
        return alone.returncode == -signal.SIGKILL

    def finish(self) -> None:
        """The import that comes after, and the same night of the archive that is never killed."""
        for archive in (self.killed, self.never):
            self._import(archive)
        assert contents(self.killed) == contents(self.never)

    def finish_another(self) -> None:
        """The import that comes after, of a source that is another one by then."""
        self.source.joinpath(f"{self.random.randrange(_FILES)}.jsonl").unlink(missing_ok=True)
        self.change()
        self._import(self.killed)
        imported(self.killed)
        shutil.rmtree(self.never, ignore_errors=True)
        shutil.copytree(self.killed, self.never)

    def _import(self, archive: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(importing, "IMPORTER", self.importer)
            import_traces(FORMATS["otlp"], [str(self.source)], archive, self.rules)

    def _rules(self, domain: str) -> Rules:
        return Rules.model_validate(
            {
                "success": {"always": True},
                "confidence": {"always": 0.8},
                "task_domain": {"otherwise": domain},
            }
        )


def contents(archive: Path) -> Mapping[str, bytes]:
    """The days, and what is refused: the state depends on how many imports there were."""
    return {each.name: each.read_bytes() for each in archive.iterdir() if each.is_file()}


def torture_imports(folder: Path, kills: int, seed: int) -> int:
    """Kill so many imports; how many still ran."""
    nights = KilledImports(folder, seed)
    killed = 0
    for _ in range(kills):
        killed += nights.kill()
        if nights.random.random() < 0.7:  # else the next night finds what two left
            nights.random.choice([nights.finish, nights.finish_another])()
            nights.change()
    nights.finish()
    return killed
