"""Opaque ids: keyed hashes over length-prefixed fields.

Nobody without the installation's key can guess a person's name from an id, and because every field
carries its length, no two different identities ever share one.
"""

import hashlib
import hmac

from schemas.identity import Scope, SessionIdentity
from schemas.memory import Kind, RecordKind

KEY_BYTES = 32


class OpaqueIds:
    """Makes the ids of one installation from its key."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise ValueError(f"the key must have at least {KEY_BYTES} bytes")
        self._key = key

    def _hash(self, prefix: str, *fields: str | int | None) -> str:
        """Return `prefix_` and 128 bits of HMAC-SHA256. None, "" and "0" all differ."""
        digest = hmac.new(self._key, prefix.encode(), hashlib.sha256)
        for field in fields:
            if field is None:
                digest.update(b"-")
                continue
            encoded = str(field).encode()
            digest.update(b"%d:" % len(encoded))
            digest.update(encoded)
        return f"{prefix}_{digest.hexdigest()[:32]}"

    def derived_key(self, purpose: str) -> bytes:
        """Return a key for a purpose of its own: none tells another, nor the installation's."""
        return hmac.new(self._key, b"key for " + purpose.encode(), hashlib.sha256).digest()

    def session(self, identity: SessionIdentity, incarnation: int) -> str:
        """Return the key of a session: whose it is, and its incarnation."""
        return self._hash("ses", *_whose(identity), incarnation)

    def session_root(self, identity: SessionIdentity) -> str:
        """Return the id under which a session's incarnation is kept."""
        return self._hash("sro", *_whose(identity))

    def turn(self, session: str, seq: int) -> str:
        """Return the id of the turn at a place."""
        return self._hash("trn", session, seq)

    def body(self, session: str, said: str) -> str:
        """Return what tells whether two turns of a session say the same, and nothing else."""
        return self._hash("bdy", session, said)

    def snapshot(self, session: str, first_seq: int) -> str:
        """Return the id of the snapshot that starts at a turn."""
        return self._hash("snp", session, first_seq)

    def slot(self, scope: Scope, kind: RecordKind, key: str) -> str:
        """Return the id of a slot, which is the id of its record too."""
        org = () if scope.org_id is None else (scope.org_id,)
        return self._hash("rec", scope.project_id, scope.owner, scope.visibility, kind, key, *org)

    def assertion(self, extraction_id: str, part: int, kind: Kind, index: int) -> str:
        """Return the id of the assertion made from one item of a part's answer."""
        return self._hash("ast", extraction_id, part, kind, index)

    def direct_save(self, name: str) -> str:
        """Return the id of the assertion that a direct save makes; its name is its own alone."""
        return self._hash("ast", name)

    def credential(self, secret: str) -> str:
        """Return what tells two credentials apart, and nothing else of them."""
        return self._hash("crd", secret)[:12]

    def execution(self, project_id: str, execution_id: str) -> str:
        """Return the id under which it is kept for whom an agent's execution is."""
        return self._hash("exe", project_id, execution_id)

    def letter(self, *source: str | int | None) -> str:
        """Return the id of a letter from what makes its failure one of its kind."""
        return self._hash("ltr", *source)


def _whose(identity: SessionIdentity) -> tuple[str | None, ...]:
    """Return what tells conversations apart; whoever else takes part in one is no part of it."""
    return (identity.project_id, identity.org_id, identity.user_id, identity.session_id)
