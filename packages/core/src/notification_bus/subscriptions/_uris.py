"""Which resources a URI lies below."""

from collections.abc import Iterator

__all__ = ["ancestors"]


def ancestors(uri: str, longest: int) -> Iterator[str]:
    """The URIs that `uri` is a sub-resource of, the nearest first, each as it may be spelt: with and without its slash.

    `board://sprint/tasks/1` lies below `board://sprint/tasks/`, `board://sprint/tasks`, `board://sprint/`,
    `board://sprint` and `board://`. A query and a fragment are one level each, and a slash inside them is none. A URI
    without slashes (`urn:…`) has no hierarchy. Nothing is decoded or normalised.

    Args:
        uri: The URI that changed. It comes from the bus, so it may be of any length.
        longest: Characters of the longest URI that anybody subscribes to; longer ones are left out, which bounds the
            work.
    """
    path = len(uri)
    for mark in "#?":
        # The fragment first: it is the innermost, and a question mark in it begins no query.
        end = uri.find(mark, 0, path)
        if end >= 0:
            path = end
            if path <= longest:
                yield uri[:path]
    scheme = uri.find("://", 0, path)
    root = scheme + 3 if scheme >= 0 else 0
    end = min(path, longest + 1)
    above = -1
    while (end := uri.rfind("/", root, end)) >= 0:
        above = end
        # A slash at the very end of the path is part of a spelling that has been given, not a level above it.
        if end + 1 < path and end < longest:
            yield uri[: end + 1]
        if end > 0:
            yield uri[:end]
    if above != root and 0 < root < path and root <= longest:
        yield uri[:root]
