"""All formats that there are."""

from collections.abc import Mapping
from types import MappingProxyType

from kp_batch.importers import atif, inspect, knowledgepulse, langfuse, langsmith, otlp, phoenix
from kp_batch.importers.format import Format

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        each.FORMAT.name: each.FORMAT
        for each in (atif, inspect, knowledgepulse, langfuse, langsmith, otlp, phoenix)
    }
)
