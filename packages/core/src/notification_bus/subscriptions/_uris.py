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
            if 0 < path <= longest:
                yield uri[:path]
    scheme = uri.find("://", 0, path)
    root = scheme + 3 if scheme >= 0 else 0
    end, nearest = min(path, longest + 1), path
    while (end := uri.rfind("/", root, end)) >= 0:
        for length in (end + 1, end):
            # Two spellings may be one: at the end of the path, and where slashes follow each other.
            if 0 < length < nearest and length <= longest:
                nearest = length
                yield uri[:length]
    if 0 < root < nearest and root <= longest:
        yield uri[:root]
