"""The doctor calls nothing ill that is well."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from cli import doctoring
from pipeline.errors import ConfigurationError
from pipeline.settings import KafkaSettings, LLMSettings, MongoSettings, Settings
from pipeline.stores.mongo import Database

TIMEOUT = timedelta(seconds=3)
SECONDS = TIMEOUT.total_seconds() + 1
"""As long as a vendor's library may take to be imported on a machine that is busy."""


async def test_a_model_whose_library_loads_slowly_makes_no_server_silent(
    db: Database,
    mongo_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The import blocks the event loop, and with it whoever waits for an answer meanwhile."""

    def loads_slowly(_: LLMSettings) -> None:
        time.sleep(SECONDS)
        raise ConfigurationError("nothing more to ask")

    monkeypatch.setattr(doctoring, "model_from", loads_slowly)
    settings = Settings(
        mongo=MongoSettings(uri=SecretStr(mongo_uri), database=db.name, timeout=TIMEOUT),
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        llm=LLMSettings(provider="openai", model="m"),
    )

    found = await doctoring.findings_of(settings, tmp_path)

    mongo, model = (
        next(each for each in found if each.name.startswith(name)) for name in ("MongoDB", "Model")
    )
    assert mongo.is_well, mongo.detail
    assert not model.is_well
