"""The metrics of this process in the format of Prometheus: values in, a page out."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pipeline.metrics import METRICS, Metric

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_Values = dict[tuple[str, ...], float]


class PrometheusExporter(Collector):
    """A `Sink` with a registry of its own; every series there can be is there from the start.

    Concurrency: one thread adds and sets, any may read the page; the keys never change.
    """

    def __init__(self) -> None:
        self._values: dict[str, _Values] = {
            metric.name: dict.fromkeys(product(*metric.labels.values()), 0.0) for metric in METRICS
        }
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Raise a counter.

        Raises:
            KeyError: A label is missing or has a value it may not have.
        """
        self._values[metric.name][_key(metric, labels)] += amount

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Set a gauge.

        Raises:
            KeyError: A label is missing or has a value it may not have.
        """
        key = _key(metric, labels)
        values = self._values[metric.name]
        _ = values[key]
        values[key] = value

    def page(self) -> bytes:
        """Return all values as text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every metric, for the registry."""
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=tuple(metric.labels))
            for labels, value in self._values[metric.name].items():
                family.add_metric(labels, value)
            yield family


def _key(metric: Metric, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(str(labels[name]) for name in metric.labels)
