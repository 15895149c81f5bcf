"""Who a client is, and who may do what: TLS, SASL, principals, operations, ACLs, and the authorizer that decides.

acls.py        ACLs, filters, and the immutable set of all ACLs with its fast lookup
audit.py       the log of denied and administrative actions
authorizer.py  decides what a client may do, by the rules of Kafka's StandardAuthorizer
certificates.py  makes an authority and certificates that it signs
operations.py  operations, resource types, pattern types and permissions, as the protocol numbers them
principal.py   who a client is
rights.py      an operation on a type of resource, and how a handler declares what its API needs
listener.py    the security of one listener, made of its settings
sasl.py        SASL of a listener, and the authentication of one connection
plain.py       the mechanism PLAIN
scram.py       the mechanisms SCRAM-SHA-256 and SCRAM-SHA-512, both sides
oauth.py       the mechanism OAUTHBEARER
key_sets.py    the keys of an OAuth provider
providers.py   what a broker asks an OAuth provider for
bearer.py      the tokens by which this broker enters others
tokens.py      the secrets of delegation tokens
jaas.py        the syntax of sasl.jaas.config
passwords.py   encrypts secrets among the settings that are made while a broker runs
first_users.py  users that a broker creates when it starts
failure.py     the exception by which authentication fails
tls.py         TLS contexts
tls_objects.py  TLS of a server's connections: costly steps in threads, and alerts to clients whose handshake fails
stores.py      keys and certificates of the ssl.* settings
ciphers.py     names of cipher suites
names.py       distinguished names, and ssl.principal.mapping.rules
replacements.py  whether a certificate may take the place of another one
"""
