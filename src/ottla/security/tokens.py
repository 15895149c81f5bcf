"""The secret of a delegation token, which brokers derive from its id: HMAC-SHA512 with delegation.token.secret.key."""

import hmac


def derive_secret(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")
