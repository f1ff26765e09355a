"""The fixture `endpoint`: a scripted model for one test, as a pytest plugin."""

from collections.abc import Iterator

import pytest

from tests.scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    """A scripted endpoint with an empty script; unforeseen requests fail the test at its end."""
    with ScriptedEndpoint() as scripted:
        yield scripted
    if scripted.errors:
        raise scripted.errors[0]
    assert scripted.unscripted == 0, f"{scripted.unscripted} requests found no reply in the script"
