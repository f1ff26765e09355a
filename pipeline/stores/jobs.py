"""The jobs of operators on MongoDB."""

from typing import Final

from pydantic import TypeAdapter
from pymongo import DESCENDING

from pipeline.stores.mongo import Collection, Database, Document, readable
from schemas.job import AnyJob, Job

_JOB: Final[TypeAdapter[AnyJob]] = TypeAdapter(AnyJob)


class MongoJobs:
    """Port `Jobs` on the collection `jobs`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["jobs"]

    async def insert(self, job: Job) -> None:
        """Store a new one."""
        await self._collection.insert_one(_document(job))

    async def get(self, job_id: str) -> AnyJob | None:
        """Return one."""
        document = await self._collection.find_one({"_id": {"$eq": job_id}})
        return None if document is None else _job(document)

    async def all(self) -> list[AnyJob]:
        """Return all, the newest first."""
        cursor = self._collection.find({}).sort("created_at", DESCENDING)
        return await readable(cursor, _job)

    async def swap(self, before: Job, after: Job) -> bool:
        """Store it where it is as it was read; false where it has changed."""
        document = _document(after) | {"rev": before.rev + 1}
        result = await self._collection.replace_one(
            {"_id": before.job_id, "rev": before.rev}, document
        )
        return result.matched_count == 1


def _document(job: Job) -> Document:
    fields = job.model_dump()
    return {"_id": fields.pop("job_id"), **fields}


def _job(document: Document) -> AnyJob:
    # Once all jobs were replays.
    fields = {"kind": "replay", "job_id": document["_id"], **document}
    del fields["_id"]
    return _JOB.validate_python(fields)
