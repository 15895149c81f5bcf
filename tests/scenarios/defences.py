"""The defences of a broker: what each keeps out, the line of the code that does it, and the test that fails without it.

`test_defences.py` takes them out one by one. The checks of rights in handlers are not in this table:
`checks_of_rights.py` finds them in the code, and they are taken out as well.
"""

from typing import NamedTuple

AUTHENTICATION = "tests/scenarios/test_authentication.py"
ACCESS = "tests/scenarios/test_access.py"
WALK = "tests/scenarios/test_access_walk.py"
TOKENS = "tests/scenarios/test_delegation_tokens.py"
HANDSHAKES = "tests/unit/server/test_handshakes.py"
ENTRANCE = "tests/scenarios/test_entrance.py"
AUTHORIZER = "tests/unit/security/test_authorizer.py"
SASL = "tests/unit/security/test_sasl.py"
SCRAM = "tests/unit/security/test_scram.py"
PLAIN = "tests/unit/security/test_plain.py"
OAUTH = "tests/unit/security/test_oauth.py"


class Defence(NamedTuple):
    against: str
    file: str
    """Below src/ottla."""
    line: str
    """A text that the file has once."""
    without: str
    """What is there instead when the defence is taken out."""
    test: str


def refused_token(kind: str) -> str:
    return f"{OAUTH}::test_other_tokens_are_refused[{kind}]"


BEFORE_AUTHENTICATION = (
    Defence(
        "other APIs before authentication",
        "server/entrance.py",
        'return self._refuse(f"API {key} before authentication")',
        "return self._dispatch(client, frame)",
        f"{AUTHENTICATION}::test_no_other_api_is_answered_before_authentication",
    ),
    Defence(
        "a large request before authentication, announced",
        "server/entrance.py",
        "return limit if self._session.identity is not None else min(limit, self._session.sasl.receive_bytes_max)",
        "return limit",
        f"{ENTRANCE}::test_a_large_frame_is_refused_when_it_is_announced",
    ),
    Defence(
        "a large request before authentication, sent at once",
        "server/entrance.py",
        "if len(frame) > session.sasl.receive_bytes_max:",
        "if False:",
        f"{AUTHENTICATION}::test_a_large_frame_is_refused_before_authentication_only",
    ),
    Defence(
        "guessing passwords as fast as the network allows",
        "server/entrance.py",
        "await asyncio.sleep(self._session.sasl.failure_delay_s)",
        "await asyncio.sleep(0)",
        f"{AUTHENTICATION}::test_a_failed_authentication_ends_the_connection",
    ),
    Defence(
        "a second guess on the same connection",
        "server/entrance.py",
        "                self._connection.drain()",
        "                pass",
        f"{ENTRANCE}::test_a_connection_has_one_guess",
    ),
    Defence(
        "connections that never authenticate",
        "server/entrance.py",
        "            self._connection.abort()",
        "            pass",
        f"{AUTHENTICATION}::test_a_client_that_does_not_authenticate_is_closed",
    ),
    Defence(
        "a mechanism that is not enabled",
        "security/sasl.py",
        "if mechanism not in self.sasl.mechanisms:",
        "if False:",
        f"{AUTHENTICATION}::test_a_mechanism_that_is_not_enabled_is_refused",
    ),
    Defence(
        "requests as bare tokens, after version 0 of the handshake",
        "server/entrance.py",
        "if session.identity is not None and not session.is_raw:\n            if key",
        "if session.is_raw or session.identity is not None:\n            if key",
        f"{AUTHENTICATION}::test_a_wrong_bare_token_ends_the_connection",
    ),
    Defence(
        "a flood of TLS handshakes",
        "server/handshakes.py",
        "            oldest.cancel()",
        "            pass",
        f"{HANDSHAKES}::test_more_handshakes_than_the_limit_are_given_up_at_once",
    ),
    Defence(
        "a flood of TLS handshakes within one iteration of the loop",
        "server/handshakes.py",
        "            self._remove(crowded, oldest)",
        "            pass",
        f"{HANDSHAKES}::test_more_handshakes_than_the_limit_are_given_up_at_once",
    ),
    Defence(
        "handshakes that take the time of clients at work",
        "server/handshakes.py",
        "            await self._handshakes.turns.wait(address, accepted)",
        "            pass",
        f"{ENTRANCE}::test_handshakes_wait_for_their_turn",
    ),
    Defence(
        "a crowd of handshakes that leave at once",
        "server/hellos.py",
        "        pace.finish(readable)",
        "        readable.done() or readable.set_result(None)",
        f"{HANDSHAKES}::test_a_crowd_that_leaves_at_once_is_dealt_with_one_by_one",
    ),
    Defence(
        "handshakes of clients that never use them",
        "server/hellos.py",
        "            elif self.unused.find(address, now) < UNUSED_MAX:",
        "            else:",
        f"{HANDSHAKES}::test_who_does_not_use_handshakes_has_few_turns",
    ),
    Defence(
        "whole handshakes that nothing follows",
        "server/entrance.py",
        "        self.logins.successful += 1\n        return None if self.turns",
        "        self.turns and self.turns.note_use(connection.address)\n        return None if self.turns",
        f"{ENTRANCE}::test_a_handshake_is_used_by_a_login_or_a_request",
    ),
    Defence(
        "handshakes to guess passwords",
        "server/entrance.py",
        "            self._note_failure()\n            await self._delay()\n            if",
        "            self._let_in()\n            await self._delay()\n            if",
        f"{ENTRANCE}::test_a_handshake_is_used_by_a_login_or_a_request",
    ),
    Defence(
        "clients of a crowded address that all wait until they are given up",
        "server/hellos.py",
        "turns.pop() if is_near_limit else turns.popleft()",
        "turns.popleft()",
        f"{HANDSHAKES}::test_of_an_address_near_its_limit_the_newest_client_is_next",
    ),
    Defence(
        "addresses that are remembered for ever",
        "server/hellos.py",
        "            del self._counts[oldest]",
        "            break",
        f"{HANDSHAKES}::test_unused_handshakes_are_forgiven_and_forgotten",
    ),
    Defence(
        "an address that takes the turns of all others",
        "server/hellos.py",
        "in list(self._waiting.items()):",
        "in sorted(self._waiting.items(), key=lambda each: -len(each[1])):",
        f"{HANDSHAKES}::test_addresses_take_turns_and_one_handshake_begins_at_a_time",
    ),
    Defence(
        "handshakes that keep everybody waiting",
        "security/tls_objects.py",
        "return arrived > 0 and self._cheap_bytes_left < 0",
        "return False",
        f"{HANDSHAKES}::test_the_costly_steps_of_a_handshake_run_in_a_thread",
    ),
    Defence(
        "a client that writes to memory which a thread uses",
        "server/handshakes.py",
        "        self._transport.pause_reading()",
        "        pass",
        f"{HANDSHAKES}::test_nothing_is_read_while_a_step_runs",
    ),
    Defence(
        "a handshake that is given up and keeps its turn for ever",
        "server/hellos.py",
        "            if not turn.cancelled() and turn.exception() is None:",
        "            if False:",
        f"{HANDSHAKES}::test_a_handshake_that_is_given_up_with_its_turn_ends_it",
    ),
    Defence(
        "a session of TLS that outlives its certificate",
        "security/tls.py",
        "context.num_tickets = 0",
        "pass",
        f"{ENTRANCE}::test_every_connection_shows_its_certificate",
    ),
    Defence(
        "connections with TLS that only the garbage collector frees",
        "server/connection.py",
        "self._transport = CLOSED",
        "pass",
        f"{HANDSHAKES}::test_connections_with_tls_are_freed_without_the_garbage_collector",
    ),
    Defence(
        "one address with all connections",
        "server/admission.py",
        "if here >= allowed:",
        "if False:",
        "tests/unit/server/test_admission.py",
    ),
    Defence(
        "no limit of connections by default",
        "config/broker_table.py",
        'INT, 1000, at_least(0), mode=CLUSTER_WIDE,\n        doc="Limit of open connections from one',
        'INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,\n        doc="Limit of open connections from one',
        "tests/unit/broker/test_connection_limits.py",
    ),
    Defence(
        "a certificate of any web site, as ZooKeeper's",
        "security/tls.py",
        "    if config.zookeeper_ssl_truststore_location is None:\n        context.load",
        "    context.load_default_certs(ssl.Purpose.SERVER_AUTH)\n    if False:\n        context.load",
        "tests/unit/cluster/test_zookeeper_tls.py::test_only_the_authorities_of_the_trust_store_are_trusted",
    ),
    Defence(
        "old versions of TLS",
        "security/tls.py",
        "context.minimum_version = min(_VERSIONS[each] for each in versions)",
        "context.minimum_version = ssl.TLSVersion.TLSv1\n    context.set_ciphers('ALL:@SECLEVEL=0')",
        f"{AUTHENTICATION}::test_old_versions_of_tls_are_refused",
    ),
    Defence(
        "clients without a certificate",
        "security/tls.py",
        "context.verify_mode = _VERIFY[client_auth]",
        "context.verify_mode = ssl.CERT_NONE",
        f"{ENTRANCE}::test_only_certificates_for_clients_are_let_in",
    ),
    Defence(
        "certificates of any public authority",
        "security/tls.py",
        "if trusted is None:\n            # Java",
        "if False:\n            # Java",
        "tests/unit/security/test_stores.py::test_clients_are_not_verified_by_public_authorities",
    ),
    Defence(
        "a name inside of another name in a certificate",
        "security/names.py",
        "if self.pattern.fullmatch(name) is None:",
        "if self.pattern.search(name) is None:",
        "tests/unit/security/test_names.py::test_a_rule_matches_the_whole_name",
    ),
    Defence(
        "a certificate that the rules give no name",
        "server/entrance.py",
        "            raise CloseConnection(str(error)) from None",
        "            return None",
        f"{ENTRANCE}::test_a_certificate_without_a_name_is_nobody",
    ),
)

AUTHENTICATION_AGAIN = (
    Defence(
        "authentication again by another mechanism",
        "security/sasl.py",
        "if mechanism != self.mechanism:",
        "if False:",
        f"{AUTHENTICATION}::test_a_client_may_authenticate_again_as_itself_only",
    ),
    Defence(
        "authentication again as another user",
        "security/sasl.py",
        "if before is not None and before.principal != identity.principal:",
        "if False:",
        f"{AUTHENTICATION}::test_a_client_may_authenticate_again_as_itself_only",
    ),
    Defence(
        "authentication again all the time",
        "security/sasl.py",
        "if self._now_s() - self._authenticated_at_s < REAUTHENTICATION_PAUSE_S:",
        "if False:",
        f"{SASL}::test_nobody_authenticates_again_all_the_time",
    ),
    Defence(
        "requests after the end of a session",
        "server/entrance.py",
        "if session.expires_at_s is not None and session.has_expired:",
        "if False:",
        f"{AUTHENTICATION}::test_a_client_may_authenticate_again_as_itself_only",
    ),
    Defence(
        "a token that expires while it is shown",
        "security/sasl.py",
        "if identity.expires_at_ms is not None and identity.expires_at_ms <= self.sasl.now_ms():",
        "if False:",
        f"{SASL}::test_a_token_that_has_expired_when_it_is_shown_is_refused",
    ),
    Defence(
        "a session that outlives its token",
        "security/sasl.py",
        "return min((each for each in (limit, left_ms) if each is not None), default=None)",
        "return limit",
        f"{TOKENS}::test_a_token_expires",
    ),
    Defence(
        "tokens made with tokens, which would never end",
        "handlers/token_requests.py",
        "if client.principal == ANONYMOUS or (identity is not None and identity.by_token):",
        "if client.principal == ANONYMOUS:",
        f"{TOKENS}::test_a_token_acts_for_its_owner",
    ),
    Defence(
        "tokens for clients without a name",
        "handlers/token_requests.py",
        "if client.principal == ANONYMOUS or (identity is not None and identity.by_token):",
        "if identity is not None and identity.by_token:",
        f"{TOKENS}::test_a_token_is_its_owners_and_its_renewers",
    ),
)

MECHANISMS = (
    Defence(
        "acting for another user with PLAIN (CVE-2017-12610)",
        "security/plain.py",
        'if authorization not in ("", name):',
        "if False:",
        f"{PLAIN}::test_nobody_acts_for_another_user",
    ),
    Defence(
        "measuring the comparison of passwords (CVE-2021-38153)",
        "security/plain.py",
        'hmac.compare_digest(_hash(password), _hash("" if known is None else known))',
        "password == known",
        f"{PLAIN}::test_passwords_are_compared_in_constant_time",
    ),
    Defence(
        "a user without a password",
        "security/plain.py",
        "if not password:",
        "if False:",
        f"{PLAIN}::test_an_empty_password_is_none",
    ),
    Defence(
        "sending a proof of SCRAM again (CVE-2024-56128)",
        "security/scram.py",
        "if not hmac.compare_digest(nonce, self._nonce):",
        "if False and not hmac.compare_digest(nonce, self._nonce):",
        f"{SCRAM}::test_the_nonce_is_compared_even_if_the_proof_is_right",
    ),
    Defence(
        "another channel binding than the one agreed on",
        "security/scram.py",
        "if _decode(binding) != self._first.header:",
        "if False:",
        f"{SCRAM}::test_a_channel_binding_is_compared_even_if_the_proof_is_right",
    ),
    Defence(
        "channel binding that the broker does not have",
        "security/scram.py",
        'rb"(n,(?:a=("',
        'rb"([ny],(?:a=("',
        f"{SCRAM}::test_channel_binding_that_was_not_agreed_is_refused",
    ),
    Defence(
        "acting for another user with SCRAM",
        "security/scram.py",
        'if authorization not in ("", name):',
        "if False:",
        f"{SCRAM}::test_nobody_acts_for_another_user",
    ),
    Defence(
        "a wrong proof",
        "security/scram.py",
        "if len(proof) != len(signature) or not is_right:",
        "if len(proof) != len(signature):",
        f"{SCRAM}::test_only_the_password_is_accepted",
    ),
    Defence(
        "a proof with bytes behind it",
        "security/scram.py",
        "if len(proof) != len(signature) or not is_right:",
        "if not is_right:",
        f"{SCRAM}::test_a_proof_of_another_length_is_refused",
    ),
    Defence(
        "finding out which users exist, by the salt",
        "broker/credentials.py",
        'secret = image.identities.decoy_secret or (image.cluster_id or "").encode()',
        "import os\n        secret = os.urandom(8)",
        f"{AUTHENTICATION}::test_an_unknown_user_gets_the_answer_of_a_wrong_password",
    ),
    Defence(
        "finding out which users exist, by the iterations",
        "broker/credentials.py",
        "return invent(mechanism, name, secret, image.identities.usual_iterations)",
        "return invent(mechanism, name, secret, 5000)",
        f"{AUTHENTICATION}::test_an_unknown_user_gets_the_answer_of_a_wrong_password",
    ),
    Defence(
        "credentials that are quick to guess",
        "cluster/credentials.py",
        "if iterations < ITERATIONS_MIN:",
        "if False:",
        "tests/unit/cluster/test_credentials.py",
    ),
    Defence(
        "credentials that keep a processor busy",
        "cluster/credentials.py",
        "if iterations > ITERATIONS_MAX:",
        "if False:",
        "tests/unit/cluster/test_credentials.py",
    ),
    Defence(
        "keys of users in the log",
        "security/scram.py",
        'return f"ScramCredential(iterations={self.iterations})"  # keys belong into no log',
        "return tuple.__repr__(self)",
        f"{SCRAM}::test_a_credential_shows_no_key",
    ),
    Defence(
        "a broker that does not know the user, at the client",
        "security/scram.py",
        "if match is None or not hmac.compare_digest(_decode(match[1]), self._server_signature):",
        "if match is None:",
        f"{SCRAM}::test_a_client_refuses_a_server_that_does_not_know_it",
    ),
    Defence(
        "tokens that somebody has changed",
        "security/oauth.py",
        'options["verify_signature"] = True',
        'options["verify_signature"] = False',
        f"{OAUTH}::test_a_changed_token_is_refused",
    ),
    Defence(
        "expired tokens",
        "security/oauth.py",
        "if now_s >= expires + self._skew_s:",
        "if False:",
        refused_token("expired"),
    ),
    Defence(
        "tokens that are not valid yet",
        "security/oauth.py",
        "for each in (issued, begins)):",
        "for each in (issued,)):",
        refused_token("not yet"),
    ),
    Defence(
        "tokens of the future",
        "security/oauth.py",
        "for each in (issued, begins)):",
        "for each in (begins,)):",
        refused_token("issued in the future"),
    ),
    Defence(
        "tokens of another issuer",
        "security/oauth.py",
        'if self._issuer is not None and claims.get("iss") != self._issuer:',
        "if False:",
        refused_token("another issuer"),
    ),
    Defence(
        "tokens for another audience",
        "security/oauth.py",
        "if self._audiences and not any(",
        "if False and not any(",
        refused_token("another audience"),
    ),
    Defence(
        "acting for another user with OAUTHBEARER",
        "security/oauth.py",
        'if authorization not in ("", identity.principal.name):',
        "if False:",
        f"{OAUTH}::test_nobody_acts_for_another_user",
    ),
    Defence(
        "URLs that nobody has allowed (CVE-2025-27817)",
        "security/providers.py",
        "if url not in config.sasl_oauthbearer_allowed_urls:",
        "if False:",
        f"{OAUTH}::test_only_allowed_urls_are_read",
    ),
    Defence(
        "a provider that sends the broker elsewhere",
        "security/providers.py",
        "handlers: list[BaseHandler] = [_NoRedirects()]",
        "handlers: list[BaseHandler] = []",
        f"{OAUTH}::test_redirects_are_not_followed",
    ),
    Defence(
        "tokens that make the broker ask the provider all the time",
        "security/key_sets.py",
        "if self._now_ms() < self._next_at_ms:",
        "if False:",
        f"{OAUTH}::test_new_keys_are_found_and_unknown_ones_do_not_make_the_broker_ask_all_the_time",
    ),
)

ACCESS_RULES = (
    Defence(
        "permissions in spite of a denial",
        "security/authorizer.py",
        "if acl.permission == Permission.DENY:\n                return",
        "if acl.permission == Permission.DENY and verdict is None:\n                return",
        f"{AUTHORIZER}::test_random_acls_decide_as_the_model_says",
    ),
    Defence(
        "ACLs of other hosts",
        "security/authorizer.py",
        "if acl.principal not in (principal, EVERYBODY) or acl.host not in hosts:",
        "if acl.principal not in (principal, EVERYBODY):",
        f"{ACCESS}::test_hosts_count",
    ),
    Defence(
        "ACLs of other users",
        "security/authorizer.py",
        "if acl.principal not in (principal, EVERYBODY) or acl.host not in hosts:",
        "if acl.host not in hosts:",
        f"{AUTHORIZER}::test_random_acls_decide_as_the_model_says",
    ),
    Defence(
        "denials that deny too much",
        "security/authorizer.py",
        "return acl.permission == Permission.ALLOW and acl.operation in _INCLUDED",
        "return acl.operation in _INCLUDED",
        f"{AUTHORIZER}::test_random_acls_decide_as_the_model_says",
    ),
    Defence(
        "decisions that outlive their ACLs",
        "security/authorizer.py",
        "            self._decisions = {}\n\n    def allows",
        "\n    def allows",
        f"{ACCESS}::test_a_revocation_counts_at_once_on_an_open_connection",
    ),
    Defence(
        "memory for decisions about any number of names",
        "security/authorizer.py",
        "if len(self._decisions) >= DECISIONS_MAX:",
        "if False:",
        f"{AUTHORIZER}::test_memory_for_decisions_is_limited",
    ),
    Defence(
        "ACLs that are lost with another one (CVE-2024-27309)",
        "security/acls.py",
        "left = before - {acl}",
        "left = before - before",
        f"{AUTHORIZER}::test_random_acls_decide_as_the_model_says",
    ),
    Defence(
        "everything for everybody where an ACL is",
        "security/authorizer.py",
        "return DEFAULT_DENY if has_acls else self._if_no_acl",
        "return self._if_no_acl",
        f"{ACCESS}::test_everybody_may_do_everything_where_no_acl_is_if_configured",
    ),
    Defence(
        "reading as a broker (CVE-2018-1288)",
        "handlers/fetch.py",
        "        if node.authorizer is not None:\n            return handle_authorized_follower",
        "        if False:\n            return handle_authorized_follower",
        f"{WALK}::test_nobody_reads",
    ),
    Defence(
        "transactional records without the right for the id (CVE-2018-17196)",
        "handlers/produce.py",
        "        require_transactional_id(node, call)",
        "        pass",
        f"{ACCESS}::test_a_batch_says_whether_it_is_transactional",
    ),
    Defence(
        "records that a long poll had read before the right was gone",
        "handlers/fetch.py",
        "    fetching.check_again()\n",
        "",
        f"{ACCESS}::test_a_fetch_that_waits_returns_nothing_after_a_revocation",
    ),
    Defence(
        "APIs whose rights nobody has declared",
        "broker/handler_table.py",
        "if not isinstance(requires, Requirement):",
        "if False:",
        f"{WALK}::test_a_handler_without_a_declaration_is_not_loaded",
    ),
    Defence(
        "rights for whole requests that nobody checks",
        "broker/access.py",
        "        require_one(node, call, rights)",
        "        pass",
        f"{WALK}::test_nobody_gets_in",
    ),
    Defence(
        "names of topics by a pattern of a subscription",
        "handlers/authorization.py",
        "    if authorizer is None:\n        return None",
        "    if True:\n        return None",
        f"{ACCESS}::test_a_pattern_matches_only_what_the_client_may_see",
    ),
    Defence(
        "topics that a consumer group assigns to a classic member who may not see them",
        "coordinators/consumer/classic_members.py",
        "frozenset(filter(caller.sight, subscription.topics) if caller.sight else subscription.topics)",
        "frozenset(subscription.topics)",
        f"{ACCESS}::test_a_classic_member_of_a_consumer_group_gets_only_what_it_may_see",
    ),
    Defence(
        "a fetch session of somebody else",
        "replication/fetch_sessions.py",
        "return isinstance(session, FetchSession) and session.owner == owner",
        "return isinstance(session, FetchSession)",
        f"{ACCESS}::test_a_session_is_its_owners",
    ),
)

INPUT = (
    Defence(
        "secrets in the settings of a broker (CVE-2019-12399)",
        "config/description.py",
        "None if setting.sensitive else render(config.value(shown)),",
        "render(config.value(shown)),",
        f"{AUTHENTICATION}::test_no_secret_is_described",
    ),
    Defence(
        "secrets in the history of a setting",
        "config/description.py",
        "return Contribution(name, None if _find_setting(name).sensitive else text, source)",
        "return Contribution(name, text, source)",
        f"{AUTHENTICATION}::test_no_secret_is_described",
    ),
    Defence(
        "login modules of others (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819)",
        "security/jaas.py",
        "if name not in MODULES.values():",
        "if False:",
        "tests/unit/security/test_jaas.py::test_other_login_modules_are_refused",
    ),
    Defence(
        "settings that only the operator may change",
        "cluster/configs.py",
        "elif setting is not None and setting.mode is UpdateMode.READ_ONLY:",
        "elif False:",
        f"{ENTRANCE}::test_security_is_not_changed_from_afar",
    ),
    Defence(
        "a topic outside of the data directory",
        "cluster/topics.py",
        "    check_name(topic.name)",
        "    pass",
        "tests/scenarios/test_topics.py::test_an_illegal_topic_name_is_refused",
    ),
    Defence(
        "lines of the log that a client writes",
        "observability/logs.py",
        "return text.translate(_ESCAPES)",
        "return text",
        f"{ACCESS}::test_a_denied_action_is_one_line_that_no_client_can_forge",
    ),
    Defence(
        "fields of the log that a client writes",
        "observability/logs.py",
        "if not _PLAIN.fullmatch(text):",
        "if False:",
        "tests/unit/observability/test_logs.py::test_a_field_that_looks_like_two_is_quoted",
    ),
    Defence(
        "records in internal topics",
        "handlers/produce.py",
        "if is_internal(partition.topic):",
        "if False:",
        f"{ACCESS}::test_internal_topics_are_not_for_clients",
    ),
    Defence(
        "a broker that is open to the network by mistake",
        "cli/exposure.py",
        "if not config.allow_anonymous_network:",
        "if False:",
        "tests/unit/cli/test_exposure.py::test_others_are_refused_unless_it_is_meant",
    ),
    Defence(
        "pages of other sites that change a Streams app",
        "streams/state/http.py",
        'if origin and scope["method"] not in _SAFE_METHODS and origin.partition("://")[2] != host:',
        "if False:",
        "tests/unit/streams/state/test_http.py::test_a_page_of_another_site_cannot_change_anything",
    ),
    Defence(
        "a buffer that is used again while a request has it (CVE-2026-35554)",
        "wire/receiving.py",
        "if size <= len(buffer) <= 4 * size and _is_free(buffer):",
        "if size <= len(buffer) <= 4 * size:",
        "tests/unit/wire/test_receiving.py",
    ),
    Defence(
        "a batch that decompresses to more than the limit (CVE-2023-34455)",
        "records/compression.py",
        "            if len(unpacked) > max_bytes:",
        "            if False:",
        "tests/unit/records/test_compression.py",
    ),
    Defence(
        "new client ids to escape a quota",
        "quotas/table.py",
        "if (value := limits.get((user, None))) is not None:\n            return Limit(Who(user, None), value)",
        "if (value := limits.get((user, None))) is not None:\n            return Limit(Who(user, client_id), value)",
        "tests/unit/quotas/test_client_quota.py::test_a_user_does_not_escape_by_new_client_ids",
    ),
    Defence(
        "memory for any number of client ids",
        "quotas/client_quota.py",
        "            who = SHARED",
        "            pass",
        "tests/unit/quotas/test_client_quota.py::test_a_flood_of_client_ids_takes_bounded_memory",
    ),
)

DEFENCES: tuple[Defence, ...] = (
    *BEFORE_AUTHENTICATION,
    *AUTHENTICATION_AGAIN,
    *MECHANISMS,
    *ACCESS_RULES,
    *INPUT,
)
