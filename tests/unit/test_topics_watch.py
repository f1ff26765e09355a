"""What is wrong with the topics is said once, and that it is mended too."""

from collections.abc import Sequence
from datetime import timedelta

from structlog.testing import capture_logs

from consumers.topics_watch import TopicsWatch
from pipeline.errors import BrokerUnavailableError, ConfigurationError


class Answers:
    """What Kafka says of the topics, look by look."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self._answers = list(answers)

    async def __call__(self) -> Sequence[str]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def told(*answers: Sequence[str] | Exception) -> list[list[tuple[str, str | None]]]:
    """Return what each look logs."""
    watch = TopicsWatch(Answers(*answers), interval=timedelta(hours=1))
    said: list[list[tuple[str, str | None]]] = []
    for _ in answers:
        with capture_logs() as logs:
            await watch.look()
        said.append([(each["event"], each.get("problem")) for each in logs])
    return said


async def test_each_problem_is_said_once_and_the_end_of_all() -> None:
    said = await told([], ["a"], ["a", "b"], ["b"], [], [], ["a"])

    assert said == [
        [],
        [("topic_problem", "a")],
        [("topic_problem", "b")],
        [],
        [("topics_mended", None)],
        [],
        [("topic_problem", "a")],
    ]


async def test_a_kafka_that_does_not_answer_changes_nothing() -> None:
    said = await told(["a"], BrokerUnavailableError("gone"), ["a"])

    assert said == [[("topic_problem", "a")], [], []]


async def test_a_refusal_to_describe_is_a_problem() -> None:
    said = await told(ConfigurationError("allow this client DescribeConfigs"))

    assert said == [[("topic_problem", "allow this client DescribeConfigs")]]
