"""What `/openapi.json` says of each route is what the route does, whatever it is sent."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import SecretStr

from api.app import application
from pipeline.settings import MongoSettings
from pipeline.stores.mongo import connect, database
from tests.integration.serving import served
from tests.services import held

EXAMPLES = 30
# Its annotations are partly unknown.
schemathesis: Any = import_module("schemathesis")
checks: Any = import_module("schemathesis.specs.openapi.checks")
modes: Any = schemathesis.GenerationMode

DESCRIPTION: dict[str, Any] = application(MagicMock()).openapi()
FLAT = "/api/v1/memory/"
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION).include(path_regex=f"^{FLAT}")
POSTED = [
    path
    for path, operations in DESCRIPTION["paths"].items()
    if path.startswith(FLAT) and "requestBody" in operations.get("post", {})
]
CUSTOM = [path for path in POSTED if "{memory_type}" in path]
EXEMPLARY = [path for path in POSTED if path not in CUSTOM]
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def url(mongo_uri: str) -> Generator[str]:
    """A server over a database of this module's own."""

    @asynccontextmanager
    async def serving() -> AsyncGenerator[str]:
        mongo = MongoSettings(uri=SecretStr(mongo_uri), database=f"contract_{uuid4().hex[:12]}")
        client = connect(mongo)
        try:
            async with served(database(client, mongo)) as server:
                yield server.url
        finally:
            await client.drop_database(mongo.database)
            await client.close()

    with held(serving()) as address:
        yield address


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_a_route_does_what_its_description_says(operation: Any, url: str) -> None:
    sent = operation.as_strategy(generation_mode=modes.POSITIVE) | operation.as_strategy(
        generation_mode=modes.NEGATIVE
    )

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=sent)
    def is_kept(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS)

    is_kept()


def example_of(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the body that the description of a route gives as an example, field by field."""
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    described = DESCRIPTION["components"]["schemas"][reference.rsplit("/", 1)[1]]
    example = {
        name: field["examples"][0]
        for name, field in described["properties"].items()
        if "examples" in field
    }
    assert set(described.get("required", ())) <= set(example)
    return example


@pytest.mark.parametrize("path", EXEMPLARY)
def test_the_example_of_a_route_is_taken(path: str, url: str) -> None:
    body = example_of(DESCRIPTION["paths"][path]["post"])

    answer = httpx.post(f"{url}{path}", json=body, timeout=30)

    assert answer.status_code in (200, 201), answer.text


def test_the_example_of_a_custom_type_is_whole() -> None:
    """It is taken only where such a type is declared."""
    for path in CUSTOM:
        assert example_of(DESCRIPTION["paths"][path]["post"])


@pytest.mark.parametrize(("gatekeeper", "is_needed"), [(MagicMock(), True), (None, False)])
def test_the_description_tells_whether_a_token_is_needed(gatekeeper: Any, is_needed: bool) -> None:
    paths = application(MagicMock(gatekeeper=gatekeeper)).openapi()["paths"]

    needs = {
        "security" in operation
        for path, operations in paths.items()
        if path.startswith(FLAT)
        for operation in operations.values()
    }
    assert needs == {is_needed}
