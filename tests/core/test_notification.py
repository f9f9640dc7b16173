"""The value and its codec: what can be built and what can be read, and that hostile input raises only its error."""

import copy
import json
import pickle
import sys
from collections import ChainMap, OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from notification_bus import GAP, BusNotification, InvalidNotificationError, MalformedBodyError, NotificationBusError
from notification_bus._json import MAX_DEPTH
from notification_bus.notification import _KNOWN, _KNOWN_SIZE, _known, decode_bodies, encode_frame

MODEST = settings(max_examples=60, deadline=None)

SERDE_BODIES = [
    line
    for line in (Path(__file__).parent.parent / "fixtures" / "serde_json_bodies.jsonl").read_bytes().split(b"\n")
    if line
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
objects = st.dictionaries(texts, values, max_size=5)
methods = texts.filter(bool)
notifications = st.builds(BusNotification, methods, st.none() | objects)


def same(left: object, right: object) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        mine, other = cast("dict[str, object]", left), cast("dict[str, object]", right)
        return mine.keys() == other.keys() and all(same(mine[key], other[key]) for key in mine)
    if isinstance(left, list):
        items, others = cast("list[object]", left), cast("list[object]", right)
        return len(items) == len(others) and all(map(same, items, others))
    return repr(left) == repr(right)


def nested(levels: int, kind: str) -> Any:
    """An array or object of so many levels."""
    value: Any = [] if kind == "array" else {}
    for _ in range(levels - 1):
        value = [value] if kind == "array" else {"a": value}
    return value


def built_error(*args: Any) -> str:
    with pytest.raises(InvalidNotificationError) as caught:
        BusNotification(*args)
    return str(caught.value)


def read_error(body: bytes | str) -> str:
    with pytest.raises(MalformedBodyError) as caught:
        BusNotification.decode(body)
    return str(caught.value)


class TestRoundTrip:
    @MODEST
    @given(methods, st.none() | objects)
    @example("x", {"a": [2**63, 2**64 - 1, -(2**63), 1e300, 5e-324, 0.1, -0.0, 0.0, 1, 1.0, True, "1", None]})
    @example("x", {"": {"": {}}, "\0": "\u2028\u202e\ufeff", "e\u0301": "\U0010ffff", "é": []})
    def test_every_json_object_comes_back_as_it_was_built(self, method: str, params: dict[str, Any] | None) -> None:
        notification = BusNotification(method, params)
        body = notification.encode()
        written = json.loads(body.decode())
        assert same(written, {"method": method} if params is None else {"method": method, "params": params})
        read = BusNotification.decode(body)
        assert read == notification
        assert hash(read) == hash(notification)
        assert read.method == method
        assert same(read.params, params)
        assert read.encode() == body

    @pytest.mark.parametrize(
        ("params", "body"),
        [
            (None, b'{"method":"x"}'),
            ({}, b'{"method":"x","params":{}}'),
            ({"uri": "é"}, '{"method":"x","params":{"uri":"é"}}'.encode()),
        ],
    )
    def test_the_body_is_exactly_the_notification(self, params: dict[str, Any] | None, body: bytes) -> None:
        assert BusNotification("x", params).encode() == body

    @MODEST
    @given(st.lists(notifications, min_size=1, max_size=4))
    def test_a_frame_is_read_as_its_bodies(self, several: list[BusNotification]) -> None:
        read, errors = decode_bodies(encode_frame([one.encode() for one in several]))
        assert read == several
        assert errors == []

    def test_the_depth_of_a_body_is_bounded_alike_for_building_and_reading(self) -> None:
        for kind in ("array", "object"):
            value = nested(MAX_DEPTH - 2, kind)
            body = BusNotification("x", {"a": value}).encode()
            assert same(BusNotification.decode(body).params, {"a": value})
            deeper = {"a": nested(MAX_DEPTH - 1, kind)}
            assert "deeper than the 127 levels" in built_error("x", deeper)
            assert "deeper than 127 levels" in read_error(json.dumps({"method": "x", "params": deeper}))
            assert "deeper than 127 levels" in read_error(json.dumps({"method": "x", "params": {"b": [deeper, 1]}}))

    def test_params_alone_may_use_the_whole_depth(self) -> None:
        params = nested(MAX_DEPTH - 1, "object")
        assert same(BusNotification.decode(BusNotification("x", params).encode()).params, params)
        built_error("x", nested(MAX_DEPTH, "object"))


class TestForeignBodies:
    @pytest.mark.parametrize("body", SERDE_BODIES)
    def test_what_serde_json_writes_is_read_and_written_back_equal(self, body: bytes) -> None:
        again = BusNotification.decode(body).encode()
        assert same(json.loads(again), json.loads(body))
        assert decode_bodies(body) == ([BusNotification.decode(again)], [])

    def test_all_the_bodies_of_serde_json_make_one_frame(self) -> None:
        read, errors = decode_bodies(b"[" + b",".join(SERDE_BODIES) + b"]")
        assert read == [BusNotification.decode(body) for body in SERDE_BODIES]
        assert errors == []

    @pytest.mark.parametrize(
        "body",
        [
            b'{"params":{"a":1},"method":"x"}',
            b' \r\n\t{ "method" : "x" ,\n"params" : { "a" : 1 } } ',
            b'{"jsonrpc":"2.0","method":"x","params":{"a":1}}',
            b'{"jsonrpc":"2.0","id":[[{"method":1,"params":[1]}]],"method":"x","params":{"a":1},"jsonrpc":"2.0"}',
            b'{"\\u006dethod":"\\u0078","par\\u0061ms":{"\\u0061":1}}',
            b'{"method":"x","params":{"a":2,"a":1}}',
            '{"method":"x","params":{"a":1},"\u2028":null,"big":1e999,"long":123456789012345678901234567890}'.encode(),
        ],
    )
    def test_another_writers_form_and_unknown_members_are_tolerated_and_not_kept(self, body: bytes) -> None:
        read = BusNotification.decode(body)
        assert read == BusNotification("x", {"a": 1})
        assert read.encode() == b'{"method":"x","params":{"a":1}}'

    @pytest.mark.parametrize("body", ['{"method":"x"}', '{"method":"x","params":null}', '{"params":null,"method":"x"}'])
    def test_null_and_missing_params_read_as_absent(self, body: str) -> None:
        read = BusNotification.decode(body)
        assert read.params is None
        assert read == BusNotification("x")
        assert read.encode() == b'{"method":"x"}'

    def test_an_empty_object_is_kept_and_differs_from_absent(self) -> None:
        read = BusNotification.decode(b'{"method":"x","params":{}}')
        assert read.params == {}
        assert read != BusNotification("x")
        assert read.encode() == b'{"method":"x","params":{}}'

    def test_text_is_read_like_bytes(self) -> None:
        assert BusNotification.decode('{"method":"é"}') == BusNotification.decode('{"method":"é"}'.encode())
        assert decode_bodies('[{"method":"é"}]') == ([BusNotification("é")], [])

    def test_a_method_that_is_spoken_of_elsewhere_in_the_body_is_no_repetition(self) -> None:
        params: dict[str, Any] = {
            "method": "a",
            "params": {"method": "b", "params": None},
            "list": [{"method": 1}, {"method": 2}],
        }
        body = BusNotification("x", params).encode()
        assert same(BusNotification.decode(body).params, params)


TOO_MANY_DIGITS = "1" * 5_000
BAD_BODIES: list[tuple[bytes | str, str]] = [
    (b"", "no JSON text"),
    (b" ", "no JSON text"),
    (b"hello", "no JSON text"),
    (b"\xff\xfe\x00", "no JSON text"),
    (b'{"method":"x"', "no JSON text"),
    (b'{"method":"x"}{}', "no JSON text"),
    (b'{"method":"x",}', "no JSON text"),
    (b"{'method':'x'}", "no JSON text"),
    (b'{"method":"x"}\0', "no JSON text"),
    (b'\xef\xbb\xbf{"method":"x"}', "no JSON text"),
    ('{"method":"x"}'.encode("utf-16"), "no JSON text"),
    ('{"method":"x"}'.encode("utf-32-le"), "no JSON text"),
    ('\ufeff{"method":"x"}', "no JSON text"),
    (b'{"method":"\xff"}', "no JSON text"),
    (b'{"method":"\xc0\xaf"}', "no JSON text"),
    (b'{"method":"\xed\xa0\x80"}', "no JSON text"),
    ('{"method":"\ud800"}', "no JSON text"),
    (b'{"method":"\\ud800"}', "no JSON text"),
    (b'{"method":"\\udc00\\ud800"}', "no JSON text"),
    (b'{"method":"x","params":{"\\udfff":1}}', "no JSON text"),
    (b'{"method":"x\n"}', "no JSON text"),
    (b'{"method":"x","params":{"a":NaN}}', "no JSON text"),
    (b'{"method":"x","params":{"a":Infinity}}', "no JSON text"),
    (b'{"method":"x","params":{"a":-Infinity}}', "no JSON text"),
    (b'{"method":"x","junk":NaN}', "no JSON text"),
    (b'{"method":"x","params":{"a":01}}', "no JSON text"),
    (b'{"method":"x","params":{"a":%s}}' % TOO_MANY_DIGITS.encode(), "no JSON text"),
    (b'{"method":"x","params":{"a":-%s}}' % TOO_MANY_DIGITS.encode(), "no JSON text"),
    (TOO_MANY_DIGITS, "no JSON text"),
    (b"[" * 100_000, "no JSON text"),
    (b'{"a":' * 100_000, "no JSON text"),
    (b"[" * 500_000 + b"]" * 500_000, "no JSON text"),
    (b'{"method":"x","params":{"a":%s%s}}' % (b"[" * 100_000, b"]" * 100_000), "no JSON text"),
    (b'{"method":"x","params":{"a":1e999}}', "number too large"),
    (b'{"method":"x","params":{"a":[{"b":-1e999}]}}', "number too large"),
    (b'{"method":"x","params":{"a":%s.0}}' % (b"1" * 400), "number too large"),
    (b'{"method":"x","params":{"a":18446744073709551616}}', "64-bit"),
    (b'{"method":"x","params":{"a":[-9223372036854775809]}}', "64-bit"),
    (b'{"method":"x","params":{"a":{"b":%s}}}' % (b"1" * 4_000), "64-bit"),
    (b'{"method":"x","params":{"a":%s%s}}' % (b"[" * 126, b"]" * 126), "deeper than 127 levels"),
    (b"null", "is null, not an object"),
    (b"true", "is a boolean, not an object"),
    (b"1", "is a number, not an object"),
    (b"1.5", "is a number, not an object"),
    (b'"x"', "is a string, not an object"),
    (b"[]", "is an array, not an object"),
    (b'[{"method":"x"}]', "is an array, not an object"),
    (b"{}", "no method"),
    (b'{"Method":"x"}', "no method"),
    (b'{"params":{"method":"x"}}', "no method"),
    (b'{"method":null}', "method is null, not a string"),
    (b'{"method":1}', "method is a number, not a string"),
    (b'{"method":true}', "method is a boolean, not a string"),
    (b'{"method":["x"]}', "method is an array, not a string"),
    (b'{"method":{"x":1}}', "method is an object, not a string"),
    (b'{"method":""}', "method is empty"),
    (b'{"method":"x","params":[]}', "params are an array, not an object"),
    (b'{"method":"x","params":"str"}', "params are a string, not an object"),
    (b'{"method":"x","params":0}', "params are a number, not an object"),
    (b'{"method":"x","params":false}', "params are a boolean, not an object"),
    (b'{"method":"x","method":"x"}', "more than one member named 'method'"),
    (b'{"method":"x","\\u006dethod":"y"}', "more than one member named 'method'"),
    (b'{"m\\u0065thod":"x","\\u006dethod":"y"}', "more than one member named 'method'"),
    (b'{"method":1,"params":{},"method":"x"}', "more than one member named 'method'"),
    (b'{"method":"x","params":{},"params":{}}', "more than one member named 'params'"),
    (b'{"method":"x","params":null,"params":{}}', "more than one member named 'params'"),
    (b'{"method":"x","params":{},"params":null}', "more than one member named 'params'"),
    (b'{"method":"x","params":null,"params":null}', "more than one member named 'params'"),
    (b'{"method":"x","params":{"method":"y"},"par\\u0061ms":{}}', "more than one member named 'params'"),
]


class TestBadBodies:
    @pytest.mark.parametrize(("body", "why"), BAD_BODIES, ids=[str(n) for n in range(len(BAD_BODIES))])
    def test_a_bad_body_is_refused_with_an_error_that_says_why(self, body: bytes | str, why: str) -> None:
        message = read_error(body)
        assert why in message
        assert len(message) < 200, "an error must not carry the whole body into a log"

    @pytest.mark.parametrize(("body", "why"), BAD_BODIES, ids=[str(n) for n in range(len(BAD_BODIES))])
    def test_a_bad_body_is_skipped_and_counted(self, body: bytes | str, why: str) -> None:
        read, errors = decode_bodies(body)
        if body == b'[{"method":"x"}]':
            assert (read, errors) == ([BusNotification("x")], [])
            return
        assert read == []
        (error,) = errors
        assert isinstance(error, NotificationBusError)

    def test_the_ends_of_the_64_bit_range_are_read_and_what_is_beyond_is_not(self) -> None:
        ends = BusNotification.decode(b'{"method":"x","params":{"a":[18446744073709551615,-9223372036854775808]}}')
        assert ends == BusNotification("x", {"a": [2**64 - 1, -(2**63)]})
        for number in (2**64, -(2**63) - 1):
            assert "64-bit" in read_error(f'{{"method":"x","params":{{"a":{number}}}}}')

    @pytest.mark.parametrize("digits", [640, 4_300])
    def test_long_numbers_in_unknown_members_raise_nothing_whatever_the_interpreters_limit(self, digits: int) -> None:
        # The escape and the repeated name send the reader down its slow path, which reads every number again.
        body = f'{{"method":"x","\\u0061":{"9" * digits}}}'
        frame = f'[{body},{{"method":{"9" * digits}}}]'
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(640)
        try:
            assert BusNotification.decode(body) == BusNotification("x")
            read, errors = decode_bodies(frame)
        finally:
            sys.set_int_max_str_digits(before)
        assert read == [BusNotification("x")]
        assert len(errors) == 1

    def test_unknown_members_may_nest_as_deep_as_the_parser_reads(self) -> None:
        body = '{"method":"x","\\u0061":' + "[" * 190 + "]" * 190 + "}"
        assert BusNotification.decode(body) == BusNotification("x")


class TestFrames:
    def test_a_bad_body_in_a_frame_is_counted_and_its_siblings_are_kept(self) -> None:
        read, errors = decode_bodies(
            b'[{"method":"a"},1,{"method":"b","params":{"x":1}},{"method":""},[{"method":"c"}],null,'
            b'{"method":"d","params":[]},{"method":"e","params":{"x":1e999}},{"method":"f","extra":1}]'
        )
        assert read == [BusNotification("a"), BusNotification("b", {"x": 1}), BusNotification("f")]
        assert [str(error) for error in errors] == [
            "body 1 of a frame: it is a number, not an object",
            "body 3 of a frame: its method is empty",
            "body 4 of a frame: it is an array, not an object",
            "body 5 of a frame: it is null, not an object",
            "body 6 of a frame: its params are an array, not an object",
            "body 7 of a frame: it holds a number too large for a 64-bit float",
        ]

    def test_an_empty_frame_is_an_error(self) -> None:
        read, errors = decode_bodies(b"[ ]")
        assert read == []
        assert [str(error) for error in errors] == ["the frame is empty"]

    def test_a_frame_in_a_frame_is_no_frame(self) -> None:
        read, errors = decode_bodies(b'[[{"method":"a"}]]')
        assert read == []
        assert "body 0 of a frame: it is an array" in str(errors[0])

    @pytest.mark.parametrize(
        "bad",
        [
            '{"method":"a","method":"b"}',
            '{"method":"a","\\u006dethod":"b"}',
            '{"method":"a","params":{},"params":{}}',
            '{"method":"a","params":null,"params":{}}',
            '{"method":1,"method":"b"}',
        ],
    )
    def test_no_body_of_a_frame_with_a_repeated_member_is_trusted(self, bad: str) -> None:
        for frame in (f"[{bad}]", f'[{{"method":"x"}},{bad}]', f'[{bad},{{"method":"x","params":{{}}}},1,[]]'):
            read, errors = decode_bodies(frame)
            assert read == []
            (error,) = errors
            assert "in a frame: it has more than one member named" in str(error)

    def test_depth_is_counted_from_each_body_of_a_frame(self) -> None:
        one = BusNotification("x", {"a": nested(MAX_DEPTH - 2, "array")})
        assert decode_bodies(encode_frame([one.encode(), one.encode()])) == ([one, one], [])

    def test_one_cut_frame_gives_one_error(self) -> None:
        read, errors = decode_bodies(encode_frame([b'{"method":"a"}'] * 100)[:-1])
        assert read == []
        assert len(errors) == 1


def _names(draw: st.DrawFn) -> str:
    return draw(
        st.sampled_from(["method", "method", "params", "params", "jsonrpc", "\\u006dethod", "para\\u006ds", "\\u0061"])
    )


@st.composite
def raw_objects(draw: st.DrawFn) -> tuple[str, list[str]]:
    """The text of an object, and its members' names, which may repeat."""
    names = [_names(draw) for _ in range(draw(st.integers(1, 4)))]
    members: list[str] = []
    for name in names:
        value = (
            draw(st.sampled_from(['"x"', '"y"']))
            if "ethod" in name
            else draw(st.sampled_from(["{}", "null", '{"method":"z","params":{"params":1}}', '{"a":["method",1]}']))
        )
        members.append(f'"{name}":{value}')
    return "{" + ",".join(members) + "}", [json.loads(f'"{name}"') for name in names]


class TestRememberedBodies:
    """A small body that was read lately is not parsed again."""

    @pytest.mark.parametrize("kind", [bytes, str])
    def test_the_same_body_reads_the_same_and_what_a_reader_does_to_it_stays_with_that_reader(self, kind: type) -> None:
        body = b'{"method":"remembered","params":{"list":[1]}}'
        readings = [decode_bodies(body if kind is bytes else body.decode()) for _ in range(3)]
        for (notification,), errors in readings:
            assert notification == BusNotification("remembered", {"list": [1]})
            assert errors == []
            cast("dict[str, list[int]]", notification.params)["list"].append(2)

    def test_a_bad_body_is_bad_each_time(self) -> None:
        for _ in range(3):
            read, errors = decode_bodies(b'{"method":""}')
            assert (read, len(errors)) == ([], 1)

    def test_the_memory_is_bounded_in_number_and_size(self) -> None:
        for number in range(3 * _KNOWN):
            decode_bodies(BusNotification("n", {"number": number, "more": "x" * (2000 if number % 2 else 1)}).encode())
        assert 0 < len(_known) <= _KNOWN
        assert max(map(len, _known)) <= _KNOWN_SIZE


class TestHostileInput:
    @MODEST
    @given(st.binary(max_size=60))
    def test_random_bytes_raise_nothing_but_the_documented_error(self, data: bytes) -> None:
        _survives(data)

    @settings(MODEST, max_examples=120)
    @given(notifications, st.data())
    def test_damaged_bodies_raise_nothing_but_the_documented_error(
        self, notification: BusNotification, data: st.DataObject
    ) -> None:
        body = bytearray(notification.encode())
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(body)))
            end = data.draw(st.integers(start, min(start + 4, len(body))))
            body[start:end] = data.draw(
                st.binary(max_size=3)
                | st.sampled_from([b'"', b"[", b"]", b"{", b"}", b",", b":", b"\\", b"\\u006d", b"e", b"-", b"9" * 30])
            )
        _survives(bytes(body))
        _survives(b"[" + bytes(body) + b',{"method":"x"}]')

    @settings(MODEST, max_examples=120)
    @given(raw_objects())
    def test_a_body_is_refused_when_a_member_of_its_own_stands_twice_and_only_then(
        self, raw: tuple[str, list[str]]
    ) -> None:
        text, names = raw
        _survives(text.encode())
        if names.count("method") == 1 and names.count("params") <= 1:
            assert BusNotification.decode(text).method in {"x", "y"}
        elif "method" in names:
            assert "more than one member" in read_error(text)
        else:
            assert "no method" in read_error(text)

    @settings(MODEST, max_examples=120)
    @given(st.lists(raw_objects() | st.sampled_from([("1", list[str]()), ("[]", list[str]())]), min_size=1, max_size=4))
    def test_a_frame_is_refused_whole_when_a_member_stands_twice_in_one_of_its_bodies(
        self, raws: list[tuple[str, list[str]]]
    ) -> None:
        read, errors = decode_bodies("[" + ",".join(text for text, _ in raws) + "]")
        if any(names.count(name) > 1 for _, names in raws for name in ("method", "params")):
            assert read == []
            assert len(errors) == 1
        else:
            good = [text for text, names in raws if "method" in names]
            assert read == [BusNotification.decode(text) for text in good]
            assert len(errors) == len(raws) - len(good)


def _survives(data: bytes) -> None:
    read, errors = decode_bodies(data)
    assert bool(read) or bool(errors)
    for notification in read:
        # What was let in must also be fit to travel, and be the same afterwards.
        assert BusNotification.decode(notification.encode()) == notification
        assert BusNotification(notification.method, notification.params) == notification
    try:
        assert BusNotification.decode(data) == read[0]
    except MalformedBodyError:
        assert not read or data.lstrip().startswith(b"[")


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Old(str, Enum):  # noqa: UP042  # the older spelling, whose str() is not its value
    KEY = "key"


class Float64(float):
    """Like numpy's: a float with a repr and a str of its own."""

    def __repr__(self) -> str:
        return f"Float64({float(self)})"

    __str__ = __repr__


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


class Odd(str):
    """Equal to nothing, so that a dict can hold it beside the plain text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Point(NamedTuple):
    x: int
    y: int


class Lazy(Mapping[str, object]):
    """A mapping that is nothing else."""

    def __getitem__(self, key: str) -> object:
        return {"a": 1, "b": [2]}[key]

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


def _cycle() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["again"] = [loop]
    return loop


REFUSED: list[tuple[object, str]] = [
    (object(), "params['k'] is a object, which JSON cannot carry"),
    ({1, 2}, "params['k'] is a set"),
    (frozenset[int](), "params['k'] is a frozenset"),
    (b"x", "params['k'] is a bytes"),
    (bytearray(b"x"), "params['k'] is a bytearray"),
    (deque([1]), "params['k'] is a deque"),
    (range(3), "params['k'] is a range"),
    (1j, "params['k'] is a complex"),
    (Path("x"), "params['k'] is a "),
    (iter([1]), "params['k'] is a list_iterator"),
    (float("nan"), "params['k'] is nan, which JSON cannot carry"),
    (float("inf"), "params['k'] is inf"),
    (float("-inf"), "params['k'] is -inf"),
    (Float64("nan"), "params['k'] is nan"),
    (2**64, "params['k'] is an integer outside the 64-bit range"),
    (-(2**63) - 1, "params['k'] is an integer outside the 64-bit range"),
    (10**5000, "params['k'] is an integer outside the 64-bit range"),
    ([1, [{"deep": [float("nan")]}]], "params['k'][1][0]['deep'][0] is nan"),
    (({"t": {3}},), "params['k'][0]['t'] is a set"),
    ({1: 2}, "params['k'] has the key 1 of type int: keys are strings"),
    ({None: 2}, "params['k'] has the key None of type NoneType"),
    ({True: 2}, "params['k'] has the key True of type bool"),
    ({("a",): 2}, "params['k'] has the key ('a',) of type tuple"),
    ({b"a": 2}, "params['k'] has the key b'a' of type bytes"),
    ({10**5000: 2}, "params['k'] has a key of type int"),
    ("\ud800", "params['k'] holds a lone surrogate"),
    (["ok", {"b": "a\udfffb"}], "params['k'][1]['b'] holds a lone surrogate"),
    ({"\ud800": 1}, "a key of params['k'], '\\ud800', holds a lone surrogate"),
    ([{"x": {"\udc80": 1}}], "a key of params['k'][0]['x'], '\\udc80', holds a lone surrogate"),
    (_cycle(), "(or contains itself)"),
]


class TestBuilding:
    @pytest.mark.parametrize(("value", "message"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
    def test_what_cannot_travel_is_refused_with_what_and_where(self, value: object, message: str) -> None:
        assert message in built_error("x", {"fine": 1, "k": value})

    @pytest.mark.parametrize("kind", ["array", "object"])
    def test_too_deep_is_refused_with_the_place(self, kind: str) -> None:
        message = built_error("x", {"k": nested(5_000, kind)})
        assert message.startswith("params['k'][")
        assert "deeper than the 127 levels" in message

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ([1], "params is list, not an object: use a dict, or None for no params"),
            ((), "params is tuple"),
            ("text", "params is str"),
            (b"{}", "params is bytes"),
            (0, "params is int"),
            (False, "params is bool"),
            ({1: 1}, "params has the key 1 of type int"),
            ({"\ud800": 1}, "a key of params, '\\ud800', holds a lone surrogate"),
        ],
    )
    def test_params_that_are_no_object_are_refused(self, params: object, message: str) -> None:
        assert message in built_error("x", params)

    @pytest.mark.parametrize(
        ("method", "message"),
        [
            (None, "method is NoneType, not str"),
            (b"x", "method is bytes, not str"),
            (1, "method is int, not str"),
            ("", "method is empty"),
            pytest.param(Shout(""), "method is empty", id="empty of a subclass"),
            ("a\ud800", "method holds a lone surrogate"),
        ],
    )
    def test_a_method_that_is_no_text_is_refused(self, method: object, message: str) -> None:
        assert message in built_error(method)

    @pytest.mark.parametrize("odd_first", [True, False])
    def test_two_keys_that_would_become_one_are_refused(self, odd_first: bool) -> None:
        params: dict[str, int] = {Odd("a"): 1, "a": 2} if odd_first else {"a": 2, Odd("a"): 1}
        assert len(params) == 2
        assert "params has the key 'a' twice" in built_error("x", params)
        assert "params['k'][0] has the key 'a' twice" in built_error("x", {"k": [params]})

    def test_an_invalid_notification_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="method is empty"):
            BusNotification("")

    def test_subclasses_become_the_plain_types_that_travel(self) -> None:
        built = BusNotification(
            Shout("m"),
            {
                Old.KEY: Colour.RED,
                Shout("level"): [Level.HIGH, True, Float64(0.5), Shout("s"), Point(1, 2)],
            },
        )
        assert same(built.method, "m")
        assert same(built.params, {"key": "red", "level": [3, True, 0.5, "s", [1, 2]]})
        assert built.encode() == b'{"method":"m","params":{"key":"red","level":[3,true,0.5,"s",[1,2]]}}'
        assert BusNotification.decode(built.encode()) == built

    @pytest.mark.parametrize(
        "params",
        [
            MappingProxyType({"a": 1, "b": [2]}),
            OrderedDict[str, object](a=1, b=[2]),
            ChainMap[str, object]({"a": 1}, {"b": [2], "a": 3}),
            UserDict({"a": 1, "b": [2]}),
            Lazy(),
            {"a": 1, "b": (2,)},
        ],
        ids=lambda params: type(params).__name__,
    )
    def test_any_mapping_makes_an_object(self, params: Mapping[str, Any]) -> None:
        for built in (BusNotification("x", params), BusNotification("x", {"in": params})):
            got: Any = built.params
            assert same(got.get("in", got), {"a": 1, "b": [2]})

    def test_later_changes_to_the_callers_object_change_nothing(self) -> None:
        params: dict[str, Any] = {"a": [1, {"b": 2}], "c": {"d": 3}}
        built = BusNotification("x", params)
        before = (built.encode(), repr(built), hash(built))
        params["a"][1]["b"] = object()
        params["c"].clear()
        params["new"] = 1
        assert (built.encode(), repr(built), hash(built)) == before
        assert same(built.params, {"a": [1, {"b": 2}], "c": {"d": 3}})

    def test_building_leaves_the_callers_object_alone(self) -> None:
        inner: dict[str, object] = {"t": (1, Level.HIGH)}
        params: dict[str, Any] = {"a": inner}
        BusNotification("x", params)
        assert params["a"] is inner
        assert inner == {"t": (1, Level.HIGH)}
        assert type(inner["t"]) is tuple

    def test_params_of_a_decoded_notification_are_copies_too(self) -> None:
        read = BusNotification.decode(b'{"method":"x","params":{"a":[1,{"b":[2]}]}}')
        got: Any = read.params
        got["a"][1]["b"].append(3)
        got["z"] = 1
        assert same(read.params, {"a": [1, {"b": [2]}]})
        assert read.encode() == b'{"method":"x","params":{"a":[1,{"b":[2]}]}}'


class TestTheFourKinds:
    @pytest.mark.parametrize(
        ("built", "body"),
        [
            (BusNotification.tools_list_changed(), {"method": "notifications/tools/list_changed"}),
            (BusNotification.prompts_list_changed(), {"method": "notifications/prompts/list_changed"}),
            (BusNotification.resources_list_changed(), {"method": "notifications/resources/list_changed"}),
            (
                BusNotification.resource_updated("HTTP://Host:80/%7Ea"),
                {"method": "notifications/resources/updated", "params": {"uri": "HTTP://Host:80/%7Ea"}},
            ),
            (GAP, {"method": "notifications/bus/gap"}),
        ],
        ids=["tools", "prompts", "resources", "resource", "gap"],
    )
    def test_each_kind_is_the_body_that_the_protocol_names(self, built: BusNotification, body: object) -> None:
        assert json.loads(built.encode()) == body

    def test_a_uri_that_is_no_text_is_refused_since_url_types_normalise(self) -> None:
        with pytest.raises(InvalidNotificationError, match="uri is PosixPath, not str: pass the exact string"):
            BusNotification.resource_updated(cast("str", Path("/x")))


def _pickled(value: BusNotification) -> BusNotification:
    again: BusNotification = pickle.loads(pickle.dumps(value))  # noqa: S301  # our own bytes
    return again


def _pickled_the_oldest_way(value: BusNotification) -> BusNotification:
    again: BusNotification = pickle.loads(pickle.dumps(value, protocol=0))  # noqa: S301  # our own bytes
    return again


def _evaluated(value: BusNotification) -> BusNotification:
    again: BusNotification = eval(repr(value), {"BusNotification": BusNotification})
    return again


CLONES: dict[str, Callable[[BusNotification], BusNotification]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": _pickled,
    "oldest pickle": _pickled_the_oldest_way,
    "repr": _evaluated,
}


class TestTheValue:
    def test_numbers_of_different_kinds_are_different_values(self) -> None:
        variants: list[Any] = [1, 1.0, True, "1", [1], {"1": 1}, None, 0, 0.0, -0.0, False, "", 2**63, float(2**63)]
        built = [BusNotification("x", {"v": variant}) for variant in variants]
        assert len(set(built)) == len(built)
        for position, one in enumerate(built):
            assert [other == one for other in built].count(True) == 1
            assert one == BusNotification("x", {"v": variants[position]})

    @MODEST
    @given(notifications, notifications)
    def test_equality_is_equality_of_the_bodies_as_json(self, one: BusNotification, other: BusNotification) -> None:
        equal = same(json.loads(one.encode()), json.loads(other.encode()))
        assert (one == other) is equal
        assert (one != other) is not equal
        if equal:
            assert hash(one) == hash(other)

    def test_the_order_of_keys_is_no_difference(self) -> None:
        one = BusNotification("x", {"a": 1, "b": {"c": 2, "d": 3}})
        other = BusNotification("x", {"b": {"d": 3, "c": 2}, "a": 1})
        assert one == other
        assert hash(one) == hash(other)

    def test_it_equals_nothing_of_another_type(self) -> None:
        assert BusNotification("x") != "x"
        assert BusNotification("x") != {"method": "x"}
        assert BusNotification("x").__eq__(object()) is NotImplemented

    def test_equality_does_not_depend_on_whether_it_was_hashed_or_encoded_before(self) -> None:
        one, other = BusNotification("x", {"a": 1}), BusNotification.decode('{"method":"x","params":{"a":1}}')
        hash(one)
        other.encode()
        assert one == other

    @pytest.mark.parametrize("name", ["method", "params", "_method", "_params", "_body", "new"])
    def test_nothing_of_it_can_be_set_or_deleted(self, name: str) -> None:
        built = BusNotification("x", {"a": 1})
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(built, name, "y")
        with pytest.raises(AttributeError, match="cannot be changed"):
            delattr(built, name)
        assert built == BusNotification("x", {"a": 1})

    @pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES.keys())
    @pytest.mark.parametrize("params", [None, {}, {"a": [1, 1.0, True, None, "é", {"b": -0.0}]}])
    def test_a_clone_equals_its_original(
        self, clone: Callable[[BusNotification], BusNotification], params: dict[str, Any] | None
    ) -> None:
        for original in (BusNotification("x", params), BusNotification.decode(BusNotification("x", params).encode())):
            other = clone(original)
            assert other == original
            assert hash(other) == hash(original)
            assert other.encode() == original.encode()

    @pytest.mark.parametrize(
        ("built", "text"),
        [
            (BusNotification("x"), "BusNotification('x')"),
            (BusNotification("x", {}), "BusNotification('x', {})"),
            (BusNotification("x", {"a": (1,)}), "BusNotification('x', {'a': [1]})"),
        ],
    )
    def test_its_repr_builds_it(self, built: BusNotification, text: str) -> None:
        assert repr(built) == text

    def test_it_can_be_matched_by_position_and_by_name(self) -> None:
        def uri_of(notification: BusNotification) -> object:
            match notification:
                case BusNotification("notifications/resources/updated", {"uri": uri}):
                    return uri
                case BusNotification(method, params=None):
                    return method
                case _:
                    return None

        assert uri_of(BusNotification.resource_updated("a:b")) == "a:b"
        assert uri_of(BusNotification.tools_list_changed()) == "notifications/tools/list_changed"
        assert uri_of(BusNotification("x", {})) is None

    def test_it_takes_no_other_attribute(self) -> None:
        assert not hasattr(BusNotification("x"), "__dict__")


def test_a_body_may_come_in_a_buffer_that_can_be_changed() -> None:
    """Some clients hand theirs over; what was read must not change with it."""
    data = bytearray(b'{"method":"buffer/%d"}' % 1)
    for number in (1, 2):
        data[-3:-2] = b"%d" % number
        assert decode_bodies(data) == ([BusNotification(f"buffer/{number}")], [])  # type: ignore[arg-type]
