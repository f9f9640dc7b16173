"""The codec: one notification to its body and back.

    uv run python -m benchmarks.codec [--rounds 15]

Processor time in microseconds, the median of the rounds, against `json.dumps` and `json.loads` of the same value, which
check nothing. The bodies are all different but in the last line: a body that was read lately is not parsed again. The
aim is of PERFORMANCE.md, 2 µs where `json` takes 3.8 in all, so as a ratio it holds on any machine; the exit code is 1
where it is missed.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any, Final

from notification_bus import BusNotification
from notification_bus.notification import decode_bodies, encode_frame

AIM: Final = 2.0 / 3.8
_COUNT: Final = 2000
_FRAME: Final = 100


def microseconds(function: Callable[[Any], object], values: Sequence[Any], each: int = 1) -> float:
    began = process_time()
    for value in values:
        function(value)
    return (process_time() - began) / (len(values) * each) * 1e6


def main() -> int:
    """Measure, print, and say by the exit code whether the aim was reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    uris = [f"board://sprint/tasks/{number:010}/some-longer-path" for number in range(_COUNT)]
    built = [BusNotification.resource_updated(uri) for uri in uris]
    bodies = [notification.encode() for notification in built]
    values = [json.loads(body) for body in bodies]
    frames = [encode_frame(bodies[start : start + _FRAME]) for start in range(0, _COUNT, _FRAME)]
    same = [bytes(bytearray(BusNotification.tools_list_changed().encode())) for _ in range(_COUNT)]
    measures: dict[str, Callable[[], float]] = {
        "encode": lambda: microseconds(BusNotification._encode, built),
        "decode": lambda: microseconds(decode_bodies, bodies),
        "json.dumps": lambda: microseconds(lambda value: json.dumps(value).encode(), values),
        "json.loads": lambda: microseconds(json.loads, bodies),
        "build, check and encode": lambda: microseconds(BusNotification.resource_updated, uris),
        "decode, in a frame": lambda: microseconds(decode_bodies, frames, _FRAME),
        "decode, the same again": lambda: microseconds(decode_bodies, same),
    }
    times: dict[str, list[float]] = {name: [] for name in measures}
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, measure in measures.items():
            times[name].append(measure())
    gc.enable()
    for name, measured in times.items():
        print(f"  {name:26}{median(measured):8.2f} µs")
    rows = zip(times["encode"], times["decode"], times["json.dumps"], times["json.loads"], strict=True)
    ratio = median((encode + decode) / (dumps + loads) for encode, decode, dumps, loads in rows)
    print(f"  encode and decode to json: {ratio:.2f}, aim {AIM:.2f}{'' if ratio <= AIM else ': missed'}")
    return 0 if ratio <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
