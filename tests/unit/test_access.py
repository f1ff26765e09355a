"""What roles may do, and the life of a service account's secrets."""

from datetime import UTC, datetime
from itertools import product

import pytest
from pydantic import ValidationError

from pipeline.access.rights import (
    MARK,
    SECRET_BYTES,
    Permission,
    Secrets,
    may,
    retired,
    revoked,
    rotated,
    secret_from,
)
from pipeline.errors import AccountError
from schemas.access import Role, ServiceAccount, StoredSecret

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEYED = Secrets(b"k" * 32)
OLD, NEW = (secret_from(bytes([each]) * SECRET_BYTES) for each in (1, 2))


def stored(secret: str, account_id: str = "sa_1") -> StoredSecret:
    return StoredSecret(
        secret_id=f"id of {secret[-4:]}", digest=KEYED.digest(account_id, secret), created_at=NOW
    )


def account(*secrets: str) -> ServiceAccount:
    return ServiceAccount(
        account_id="sa_1",
        name="assistant",
        project_id="alpha",
        role=Role.AGENT,
        secrets=tuple(stored(secret) for secret in secrets),
        created_at=NOW,
    )


def test_operators_operate_and_read_nobodys_memory() -> None:
    allowed = {each for each in product(Role, Permission) if may(*each)}

    assert allowed == {
        (Role.AGENT, Permission.MEMORY),
        (Role.OPERATOR, Permission.METRICS),
        (Role.OPERATOR, Permission.OPERATE),
        (Role.ADMIN, Permission.MEMORY),
        (Role.ADMIN, Permission.METRICS),
        (Role.ADMIN, Permission.OPERATE),
        (Role.ADMIN, Permission.WORDS),
    }


def test_a_secret_is_marked_and_has_all_its_random_bits() -> None:
    assert OLD.startswith(MARK)
    assert len(OLD) == len(MARK) + 43
    assert OLD != NEW
    with pytest.raises(ValueError, match="at least 32"):
        secret_from(b"1" * (SECRET_BYTES - 1))


def test_each_valid_secret_is_known_and_nothing_else() -> None:
    both = account(OLD, NEW)

    assert KEYED.matching(both, OLD) == both.secrets[0]
    assert KEYED.matching(both, NEW) == both.secrets[1]
    for other in ("", OLD[:-1], f"{OLD} ", OLD.lower(), both.secrets[0].digest, "\ud800", "0" * 64):
        assert KEYED.matching(both, other) is None
    assert KEYED.matching(account(), "") is None
    assert KEYED.matching(None, OLD) is None


def test_what_is_stored_tells_neither_the_secret_nor_who_else_has_it() -> None:
    one, other = KEYED.digest("sa_1", OLD), KEYED.digest("sa_2", OLD)

    assert OLD not in one
    assert one != other
    assert one != Secrets(b"K" * 32).digest("sa_1", OLD)


def test_rotation_keeps_the_old_secret_until_it_is_retired() -> None:
    first = account(OLD)
    second = rotated(first, stored(NEW))
    third = retired(second)

    assert [each.digest for each in second.secrets] == [stored(OLD).digest, stored(NEW).digest]
    assert third.secrets == (stored(NEW),)
    assert [first.rev, second.rev, third.rev] == [0, 1, 2]
    assert KEYED.matching(third, OLD) is None


def test_a_third_secret_or_none_is_refused_with_the_way_out() -> None:
    with pytest.raises(AccountError, match="accounts retire assistant"):
        rotated(account(OLD, NEW), stored("third"))
    with pytest.raises(AccountError, match="accounts rotate assistant"):
        retired(account(OLD))
    with pytest.raises(ValidationError):
        account(OLD, NEW, "third")


def test_a_revoked_account_has_no_secret_and_stays_revoked() -> None:
    ended = revoked(account(OLD, NEW), NOW)

    assert (ended.secrets, ended.revoked_at) == ((), NOW)
    assert revoked(ended, datetime(2027, 1, 1, tzinfo=UTC)) == ended
    # Though its secrets were put back by hand.
    assert KEYED.matching(ended.model_copy(update={"secrets": (stored(OLD),)}), OLD) is None
    for change in (lambda: rotated(ended, stored(NEW)), lambda: retired(ended)):
        with pytest.raises(AccountError, match="revoked"):
            change()


@pytest.mark.parametrize("name", ["", " ", "-a", "a b", "a/b", "a\n", "é", "a" * 65])
def test_a_name_that_could_not_be_typed_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ServiceAccount.model_validate(dict(account()) | {"name": name})
