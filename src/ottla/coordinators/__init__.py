"""Groups and transactions: state machines that decide, records that remember, replay that rebuilds."""
