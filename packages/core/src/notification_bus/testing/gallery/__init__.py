"""Buses that are broken on purpose, each in one way, and the check of the kit that must catch it."""
