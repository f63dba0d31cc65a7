"""The server: the round loop and what it does with answers; it never sees a client's data."""
