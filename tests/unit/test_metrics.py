"""What is counted: one list, closed labels, and nothing of it in the way of a message."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from aiokafka.errors import CommitFailedError
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from consumers.exporting import PrometheusExporter
from consumers.pool import Pool, PoolLimits
from pipeline.metrics import METRICS, NO_METRICS, Backlog, Metric, Metrics
from pipeline.sweeping import mend_each
from schemas.extraction import Outcome
from schemas.failure import FailureClass
from tests.metrics_table import table
from tests.unit.test_pool import NEVER, ONE, TWO, Consumer, Gated, message, turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


class Broken(PrometheusExporter):
    """An exporter that can't."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = 0

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        self.tried += 1
        raise OSError("planted words")

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.tried += 1
        raise OSError("planted words")


def everything(metrics: Metrics) -> None:
    """Call every method once."""
    metrics.extraction_settled(Outcome.RECORDS)
    metrics.attempt_failed(FailureClass.NETWORK)
    metrics.duplicate_suppressed("stale")
    metrics.message_held("extraction")
    metrics.holding("extraction.retry", 3)
    metrics.commit_failed("snapshot")
    metrics.item_swept("open_turns", is_mended=False)
    metrics.model_called("anthropic", FailureClass.TIMEOUT, 2)
    metrics.tokens_used("gemini", 5, None)
    metrics.answer_unkept("reask", calls=2, prompt=7, completion=8)
    metrics.embedder_called("answered")
    metrics.record_embedded("refused")
    metrics.login("limited")
    metrics.request_refused("forbidden")
    metrics.backlog(
        Backlog(
            measured_at=NOW,
            oldest_open_at=NOW - timedelta(seconds=90),
            letters={FailureClass.REFUSED: 4},
            oldest_letter_at=None,
            breakers={"open": 1},
            guards={"holding": 2},
        )
    )


def samples(exporter: PrometheusExporter) -> dict[tuple[str, str], float]:
    """Return what stands on the page and is not zero, by name and the values of the labels."""
    return {
        (sample.name, " ".join(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exporter.page().decode())
        for sample in family.samples
        if sample.value
    }


def test_each_method_changes_what_it_names_and_nothing_else() -> None:
    exporter = PrometheusExporter()
    everything(Metrics(exporter))

    assert samples(exporter) == {
        ("afterturn_extractions_settled_total", "records"): 1,
        ("afterturn_attempts_failed_total", "env.network"): 1,
        ("afterturn_duplicates_suppressed_total", "stale"): 1,
        ("afterturn_holds_total", "extraction"): 1,
        ("afterturn_messages_held", "extraction.retry"): 3,
        ("afterturn_commits_failed_total", "snapshot"): 1,
        ("afterturn_sweep_items_total", "not_mended open_turns"): 1,
        ("afterturn_model_calls_total", "env.timeout anthropic"): 2,
        ("afterturn_model_tokens_total", "prompt gemini"): 5,
        ("afterturn_model_calls_unkept_total", "reask"): 2,
        ("afterturn_model_tokens_unkept_total", "prompt"): 7,
        ("afterturn_model_tokens_unkept_total", "completion"): 8,
        ("afterturn_open_turn_age_seconds", ""): 90,
        ("afterturn_letters", "content.refused"): 4,
        ("afterturn_measured_timestamp_seconds", ""): NOW.timestamp(),
        ("afterturn_breakers", "open"): 1,
        ("afterturn_guards", "holding"): 2,
        ("afterturn_embedder_calls_total", "answered"): 1,
        ("afterturn_records_embedded_total", "refused"): 1,
        ("afterturn_logins_total", "limited"): 1,
        ("afterturn_requests_refused_total", "forbidden"): 1,
    }


def test_what_there_is_no_more_of_is_zero_again() -> None:
    exporter = PrometheusExporter()
    metrics = Metrics(exporter)
    everything(metrics)
    metrics.backlog(
        Backlog(
            measured_at=NOW,
            oldest_open_at=None,
            letters={},
            oldest_letter_at=None,
            breakers={"closed": 1},
            guards={},
        )
    )

    left = samples(exporter)
    assert ("afterturn_letters", "content.refused") not in left
    assert ("afterturn_open_turn_age_seconds", "") not in left
    assert ("afterturn_breakers", "open") not in left


def test_an_exporter_that_raises_is_said_once_and_stops_nothing() -> None:
    broken = Broken()
    metrics = Metrics(broken)
    with capture_logs() as logs:
        everything(metrics)
        tried = broken.tried
        everything(metrics)

    assert broken.tried == 2 * tried
    said = [each["metric"] for each in logs if each["event"] == "metric_not_kept"]
    assert sorted(said) == sorted(metric.name for metric in METRICS)
    assert "planted words" not in str(logs)


def test_a_label_of_another_value_is_never_exported() -> None:
    exporter = PrometheusExporter()
    before = exporter.page()
    with capture_logs() as logs:
        Metrics(exporter).message_held("planted")

    assert exporter.page() == before
    assert [each["event"] for each in logs] == ["metric_not_kept"]


def test_every_series_there_can_be_is_there_from_the_start() -> None:
    found = {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(PrometheusExporter().page().decode())
        for sample in family.samples
    }

    assert found == {
        (metric.name, frozenset(zip(metric.labels, values, strict=True)))
        for metric in METRICS
        for values in product(*metric.labels.values())
    }
    assert len(found) < 250


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_prometheus_has_it(metric: Metric) -> None:
    assert re.fullmatch(r"afterturn_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.meaning.endswith(".")
    assert all(
        re.fullmatch(r"[a-z_.]+", value) for values in metric.labels.values() for value in values
    )


def test_no_metrics_keep_nothing_and_say_nothing() -> None:
    with capture_logs() as logs:
        everything(NO_METRICS)

    assert logs == []


def test_operators_are_told_of_every_metric() -> None:
    assert table() in PAGE.read_text(), "python -m tests.metrics_table, into docs/operations.md"


def test_alerts_name_metrics_and_labels_that_there_are() -> None:
    names = {metric.name for metric in METRICS}
    values = {value for metric in METRICS for each in metric.labels.values() for value in each}
    page = PAGE.read_text()
    rules = re.findall(r"^\| `([^`]*afterturn_[^`]*[<>][^`]*)`", page, re.MULTILINE)

    assert len(rules) > 5
    for rule in rules:
        assert set(re.findall(r"afterturn_\w+", rule)) <= names
        for said in re.findall(r'="([^"]+)"', rule):
            assert said in values
        for said in re.findall(r'=~"([^"]+)"', rule):
            for pattern in said.split("\\|"):
                assert any(re.fullmatch(pattern, value) for value in values)


async def test_commits_that_fail_and_what_is_held_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumers.commits.FAILURE_BACKOFF", timedelta(milliseconds=1))
    exporter, consumer, step = PrometheusExporter(), Consumer(), Gated()
    consumer.error = CommitFailedError()
    limits = PoolLimits(
        concurrency=1,
        drain_timeout=timedelta(milliseconds=20),
        commit_timeout=timedelta(seconds=1),
        commit_interval=timedelta(milliseconds=1),
        first_hold=NEVER,
        longest_hold=NEVER,
    )
    pool = Pool(
        step, limits, name="extraction", consumer=lambda: consumer, metrics=Metrics(exporter)
    )
    pool.start()
    await pool.on_partitions_assigned([ONE, TWO])
    pool.submit(message(0, 0))
    pool.submit(message(1, 0))
    await turns()
    await step.end(0, 0)
    await step.end(1, 0, OSError())
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.005)
            found = samples(exporter)
            if ("afterturn_commits_failed_total", "extraction") in found:
                break
    failures = pool.commit_failures
    await pool.stop()

    assert found["afterturn_holds_total", "extraction"] == 1
    assert found["afterturn_messages_held", "extraction"] == 1
    assert found["afterturn_commits_failed_total", "extraction"] in {failures - 1, failures}
    assert ("afterturn_messages_held", "extraction") not in samples(exporter)


async def test_each_item_of_a_sweep_is_counted_by_what_became_of_it() -> None:
    exporter = PrometheusExporter()

    async def mend(item: int) -> None:
        if item == 1:
            raise ValueError

    await mend_each([1, 2, 3], mend, sweep="dirty_slots", metrics=Metrics(exporter))

    assert samples(exporter) == {
        ("afterturn_sweep_items_total", "mended dirty_slots"): 2,
        ("afterturn_sweep_items_total", "not_mended dirty_slots"): 1,
    }
