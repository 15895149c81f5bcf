"""Who may do what: principals, operations, ACLs, and the authorizer that decides.

acls.py        ACLs, filters, and the immutable set of all ACLs with its fast lookup
audit.py       the log of denied and administrative actions
authorizer.py  decides what a client may do, by the rules of Kafka's StandardAuthorizer
certificates.py  makes an authority and certificates that it signs
operations.py  operations, resource types, pattern types and permissions, as the protocol numbers them
principal.py   who a client is
rights.py      an operation on a type of resource, and how a handler declares what its API needs
"""
