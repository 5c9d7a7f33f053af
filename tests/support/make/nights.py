"""An archive of a file a day, and the runs over it."""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kp_batch.config import RescoreConfig
from kp_batch.dimensions import DIMENSIONS
from kp_batch.ingest.scan import scan_archive
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning.explain_plan import PlanDescription, describe
from kp_batch.planning.plan import make_plan
from kp_batch.planning.scorer import Scorer
from kp_batch.report.run_summary import Summary
from kp_batch.runs.run import Run
from kp_batch.scoring.profiles import load_profiles
from kp_batch.steps.step import ThreadExecutor
from kp_batch.warehouse.reader import connect
from kp_batch.warehouse.staging import Staging
from tests.support.make.archives import trace, write_jsonl

PROFILE = """[profiles.{name}]
complexity = 0.1
novelty = 0.2
tool_diversity = 0.3
outcome_confidence = 0.4
"""


class Trace(NamedTuple):
    """A trace; in order of these, traces are replayed."""

    at: datetime
    id: str
    domain: str
    words: str


class Night:
    """An archive of one file a day, and the settings of the runs over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {"embedder": "hashing", "cache_size": 6}

    def write(self, traces: Iterable[Trace]) -> None:
        by_day: dict[str, list[Trace]] = {}
        for each in traces:
            by_day.setdefault(f"{each.at:%F}", []).append(each)
        for day, several in by_day.items():
            rows = [
                trace(
                    id=each.id,
                    created_at=each.at.isoformat(),
                    task_domain=each.domain,
                    objective=each.words,
                )
                for each in several
            ]
            write_jsonl(self.folder / "archive" / f"{day}.jsonl", rows)

    def profile(self, name: str) -> None:
        path = self.folder / "profiles.toml"
        path.write_text(PROFILE.format(name=name))
        self.settings["profiles"] = path

    def weigh_code_from(self, moment: datetime) -> None:
        """Other weights of code from a time on; the built-in ones hold before."""
        weights = dict.fromkeys(DIMENSIONS, 0.25)
        self.settings["profiles"] = {
            **load_profiles().as_json(),
            "code": [load_profiles().as_json()["code"], {"from": moment, **weights}],
        }

    def config(self, **changes: Any) -> RescoreConfig:
        places = {"archive": (str(self.folder / "archive"),), "warehouse": self.folder / "wh"}
        return RescoreConfig.model_validate({**places, **self.settings, **changes})

    def run(self) -> Summary:
        return rescore_archive(self.config())

    def described(self, *, by_domain_and_day: bool = True, **changes: Any) -> PlanDescription:
        with tempfile.TemporaryDirectory() as folder:
            run = Run.begin(self.config(**changes), datetime.now(UTC), Staging(Path(folder)))
            run.staging.make()
            return describe(
                run,
                make_plan(run, scan_archive(run, ThreadExecutor()), Scorer.of(run)),
                by_domain_and_day=by_domain_and_day,
            )

    def plan(self, **changes: Any) -> dict[str, Any]:
        """The plan, as its JSON is."""
        return json.loads(json.dumps(asdict(self.described(**changes))))

    def check(self, planned: dict[str, Any]) -> None:
        """That a run does what was planned."""
        summary = self.run()
        counts = summary.counts
        assert counts
        for name, done in (
            ("texts_to_embed", "embedded"),
            ("traces_to_replay", "replayed"),
            ("traces_to_rescore", "rescored"),
            ("traces_to_reweight", "reweighted"),
            ("traces_to_remove", "removed"),
        ):
            assert planned[name] == getattr(counts, done), name
        assert len(planned["partitions"]) == counts.partitions
        query = (
            "SELECT created_at::DATE::VARCHAR, task_domain, count(*) FROM scores "
            "WHERE run_id = ? GROUP BY ALL ORDER BY ALL"
        )
        with connect(self.folder / "wh") as connection:
            stated = connection.execute(query, [summary.run_id]).fetchall()
        assert stated == [
            (row["day"], row["task_domain"], row["rescore"]) for row in planned["by_domain_and_day"]
        ]
