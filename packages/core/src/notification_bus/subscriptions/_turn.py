"""Giving the event loop its turn, for the price of that."""

import asyncio

from anyio.lowlevel import checkpoint

__all__ = ["turn"]


async def turn() -> None:
    """Let the other tasks run, and be cancelled here where that has been asked for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await checkpoint()
    else:
        # What anyio does on asyncio, without looking up each time that it is asyncio: a burst pays this for each one.
        await asyncio.sleep(0)
