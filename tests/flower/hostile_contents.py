"""Hostile changes to Flower's own objects: to records, to messages, and to the bytes that they become."""

from random import Random
from typing import Any

from fake_link import Sent, reply
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ObjectTree
from hostile_headers import ESCAPES, JUNK, Change

from steelyard.flower.channel import PASSING
from steelyard.flower.runtime import MAX_DESCRIBED
from steelyard.flower.wire import ARRAYS, HEADER, RAW

TYPES = (
    "Message",
    "RecordDict",
    "ArrayRecord",
    "ConfigRecord",
    "MetricRecord",
    "Array",
    "ArrayChunk",
    "object",
)

Records = dict[str, Any]


def _record(draw: Random) -> Any:
    return draw.choice(
        (
            ConfigRecord({"json": draw.choice((b"{}", 1, [1.0], "", [""]))}),
            ConfigRecord({"json": "{}", "more": 1}),
            ConfigRecord(),
            MetricRecord({"json": 1.0}),
            ArrayRecord(),
            ArrayRecord({"json": Array("float32", (1,), RAW, b"abcd")}),
        )
    )


def _replace_record(draw: Random, records: Records) -> None:
    records[HEADER] = _record(draw)


def _replace_arrays(draw: Random, records: Records) -> None:
    records[ARRAYS] = _record(draw)


def _add_record(draw: Random, records: Records) -> None:
    records[draw.choice(("", "x", ESCAPES.replace("\ud800", ""), "Header"))] = _record(draw)


def _drop_record(draw: Random, records: Records) -> None:
    del records[draw.choice((HEADER, ARRAYS))]


def _swap_records(draw: Random, records: Records) -> None:
    records[HEADER], records[ARRAYS] = records[ARRAYS], records[HEADER]


RECORDS = (
    Change("another header", _replace_record),
    Change("other arrays", _replace_arrays),
    Change("one record more", _add_record),
    Change("one record less", _drop_record),
    Change("swapped", _swap_records),
)


def _error(draw: Random, sent: Sent) -> Sent:
    code = draw.choice((*PASSING, ErrorCode.UNKNOWN, -1, 2**31 - 1))
    reason = draw.choice(("", "no", ESCAPES.replace("\ud800", "") * 200))
    found = reply(Error(code, reason), sent.proto.metadata.reply_to_message_id)
    if draw.random() < 0.5:  # the error is only in the pieces, not in what lists them
        found.proto.ClearField("error")
    if draw.random() < 0.3:
        found.proto.metadata.message_type = draw.choice(("", "x", ESCAPES.replace("\ud800", "")))
    return found


def _stray(draw: Random, sent: Sent) -> Sent:
    """A reply to a question that nobody asked, or asked earlier."""
    sent.proto.metadata.reply_to_message_id = draw.choice(("", "question 1", "x", sent.message_id))
    return sent


def _late(draw: Random, sent: Sent) -> Sent:
    sent.late = draw.randrange(1, 4)
    return sent


def _metadata(draw: Random, sent: Sent) -> Sent:
    """What lists the pieces says other things of the message; only its id and question are read."""
    sent.proto.metadata.src_node_id = draw.getrandbits(60)
    sent.proto.metadata.run_id = draw.getrandbits(60)
    sent.proto.metadata.ttl = draw.choice((-1.0, float("nan"), float("inf")))
    return sent


MESSAGES = (
    Change("error", _error),
    Change("to another question", _stray),
    Change("late", _late, False),
    Change("metadata", _metadata, False),
)


def _ids(sent: Sent, kind: str) -> list[str]:
    return [id for id, content in sent.contents.items() if content.startswith(kind.encode() + b" ")]


def _flip(draw: Random, sent: Sent) -> None:
    id = draw.choice([*sent.contents])
    content = bytearray(sent.contents[id])
    for _ in range(draw.choice((1, 1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    sent.contents[id] = bytes(content)


def _cut(draw: Random, sent: Sent) -> None:
    id = draw.choice([*sent.contents])
    sent.contents[id] = sent.contents[id][: draw.randrange(len(sent.contents[id]))]


def _remove(draw: Random, sent: Sent) -> None:
    del sent.contents[draw.choice([*sent.contents])]


def _retype(draw: Random, sent: Sent) -> None:
    id = draw.choice([*sent.contents])
    old, _, rest = sent.contents[id].partition(b" ")
    other = draw.choice([each for each in (*TYPES, "", ESCAPES[:9], "os.system") if each.encode() != old])
    sent.contents[id] = other.encode() + b" " + rest


def _swap(draw: Random, sent: Sent) -> None:
    one, other = draw.sample([*sent.contents], 2)
    sent.contents[one], sent.contents[other] = sent.contents[other], sent.contents[one]


def _head(draw: Random, sent: Sent) -> None:
    """Another head on the body: none, too many words, lengths that are none, children that are missing."""
    id = draw.choice([*sent.contents])
    kind = sent.contents[id].partition(b" ")[0]
    heads = (b"", b"  ", kind, kind + b"  x", kind + b"  " + b"9" * 5000, kind + b" a,b 1", b"\xff\xfe 1")
    own = (kind + b" " + id.encode() + b" 1", kind + b" " + b"," * 100 + b" 1")
    sent.contents[id] = draw.choice((*heads, *own)) + b"\0" + sent.contents[id].partition(b"\0")[2]


def _body(draw: Random, sent: Sent) -> None:
    id = draw.choice([*sent.contents])
    bodies = (
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff" * 9,
        b"[" * 100_000,
        b'{"a": 1}',
        str(JUNK).encode("ascii", "replace"),
    )
    sent.contents[id] = sent.contents[id].partition(b"\0")[0] + b"\0" + draw.choice(bodies)


def _bomb(draw: Random, sent: Sent) -> None:
    """One piece of an array, listed very often: more than the server allows for a message."""
    id = draw.choice(_ids(sent, "Array"))
    head = sent.contents[id].partition(b"\0")[0]
    listed = "0," * draw.choice((300_000, 1_000_000)) + "0"
    body = f'{{"dtype": "float32", "shape": [9], "stype": "{RAW}", "arraychunk_ids": [{listed}]}}'
    sent.contents[id] = head + b"\0" + body.encode()


def _described(draw: Random, sent: Sent) -> None:
    """More text than a message needs, of which Python would make many objects."""
    id = draw.choice([*_ids(sent, "RecordDict"), *_ids(sent, "ArrayRecord"), *_ids(sent, "Message")])
    sent.contents[id] = (
        sent.contents[id].partition(b"\0")[0] + b"\0[" + b"[]," * (MAX_DESCRIBED // 3) + b"[]]"
    )


def _places(draw: Random, sent: Sent) -> None:
    """Places in the list of pieces that are none."""
    id = draw.choice(_ids(sent, "Array"))
    listed = draw.choice(
        ("[1]", "[-2]", "[0.0]", '["0"]', "[null]", "{}", "null", "[[0]]", "7", "[9" + "9" * 400 + "]")
    )
    sent.contents[id] = sent.contents[id].replace(
        b'"arraychunk_ids": [0]', f'"arraychunk_ids": {listed}'.encode()
    )


def _chain(draw: Random, sent: Sent) -> None:
    """Objects inside objects, deeper than Python can go."""
    for number in range(3000):
        sent.contents[f"c{number}"] = f"RecordDict c{number + 1} 2".encode() + b"\0{}"
    top = sent.message_id
    sent.contents[top] = b"Message c0 0\0" + sent.contents[top].partition(b"\0")[2]
    sent.tree.children.extend(ObjectTree(object_id=f"c{number}") for number in range(3000))


CONTENTS = (
    Change("bit flips", _flip, False),
    Change("cut", _cut),
    Change("missing", _remove),
    Change("another type", _retype),
    Change("swapped pieces", _swap),
    Change("head", _head, False),
    Change("body", _body, False),
    Change("places", _places),
)
HEAVY = (Change("bomb", _bomb), Change("described", _described), Change("chain", _chain))
"""Slow to make."""
