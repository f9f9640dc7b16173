"""The contract kit: what a bus promises, as checks that anyone can run against any bus."""
