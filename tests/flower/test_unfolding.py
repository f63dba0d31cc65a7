"""Messages are put together out of their pieces; what would become too large is refused before it is made."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_link import LinkChannel, Sent, reply
from flwr.app import Error, RecordDict
from flwr.common.constant import ErrorCode

from steelyard.flower.channel import PASSING, Problem
from steelyard.flower.runtime import MAX_DESCRIBED, UnreadableError, unfold
from steelyard.flower.wire import RAW, Parcel, from_records, to_records

LIMIT = 8 << 20


def pieces(size: int = 4096) -> Sent:
    values = np.arange(size, dtype=np.float64)
    return reply(to_records(Parcel({"a": 1}, {"x": values})), "question")


def id_of(sent: Sent, kind: str) -> str:
    return next(id for id, content in sent.contents.items() if content.startswith(kind.encode() + b" "))


def with_body(sent: Sent, kind: str, body: str) -> Sent:
    id = id_of(sent, kind)
    sent.contents[id] = sent.contents[id].partition(b"\0")[0] + b"\0" + body.encode()
    return sent


def bomb(times: int) -> Sent:
    """An array of 32 KiB that says that it is as many times as large."""
    listed = ",".join(["0"] * times)
    body = f'{{"dtype": "float64", "shape": [4096], "stype": "{RAW}", "arraychunk_ids": [{listed}]}}'
    return with_body(pieces(), "Array", body)


def test_a_message_comes_back_from_its_pieces() -> None:
    sent = pieces()
    message = unfold(sent.message_id, dict(sent.contents), LIMIT)
    assert message.metadata.message_id == sent.message_id
    assert from_records(message.content).arrays["x"].tolist() == [*range(4096)]


@pytest.mark.parametrize("times", [257, 1_000_000])
def test_a_piece_that_is_listed_a_million_times_is_refused_before_it_is_made(times: int) -> None:
    sent = bomb(times)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError, match=f"arrays of more than {LIMIT} bytes"):
            unfold(sent.message_id, sent.contents, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20, "the array would have up to 32 GB"
    finally:
        tracemalloc.stop()


def test_a_piece_may_be_listed_twice() -> None:
    sent = bomb(2)
    message = unfold(sent.message_id, sent.contents, LIMIT)
    assert len(message.content["arrays"]["x"].data) == 2 * 4096 * 8  # type: ignore[union-attr, index]


def test_arrays_are_added_up() -> None:
    """Each is small enough by itself."""
    arrays = {str(number): np.full(1 << 17, number, np.float64) for number in range(9)}
    sent = reply(to_records(Parcel({}, arrays)), "question")
    with pytest.raises(UnreadableError, match="arrays of more than"):
        unfold(sent.message_id, sent.contents, LIMIT)


@pytest.mark.parametrize("kind", ["Message", "RecordDict", "ArrayRecord", "ConfigRecord", "Array"])
def test_text_that_would_become_many_objects_is_refused_before_it_is_read(kind: str) -> None:
    sent = with_body(pieces(), kind, '{"arraychunk_ids": [' + "[]," * (MAX_DESCRIBED // 3) + "[]]}")
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError, match=f"more than {MAX_DESCRIBED} bytes besides its arrays"):
            unfold(sent.message_id, sent.contents, 1e12)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_a_record_is_no_message() -> None:
    sent = pieces()
    with pytest.raises(UnreadableError, match="no message at all"):
        unfold(id_of(sent, "RecordDict"), dict(sent.contents), LIMIT)


def received(
    *sent: Sent, ids: tuple[str, ...] = ("question 1",), looks: int = 1, limit: float = LIMIT
) -> Any:
    """What the channel makes of the replies to the first question."""
    channel = LinkChannel(["oslo"], lambda client, question, id: [*sent])
    try:
        channel.send({"oslo": RecordDict()}, 60.0)
        for _ in range(looks):
            found = channel.receive(ids, limit)
        return found, channel.link
    finally:
        channel.close()


def to_question(sent: Sent, id: str = "question 1") -> Sent:
    sent.proto.metadata.reply_to_message_id = id
    return sent


def test_an_answer_is_received_and_confirmed() -> None:
    sent = to_question(pieces())
    found, link = received(sent)
    assert from_records(found["question 1"]).header == {"a": 1}
    assert link.confirmed == [sent.message_id]


def test_an_answer_that_has_not_arrived_completely_is_waited_for() -> None:
    late = to_question(pieces())
    late.late = 2
    assert received(late, looks=1)[0] == {}
    assert received(late, looks=2)[0] == {}
    assert from_records(received(late, looks=3)[0]["question 1"]).header == {"a": 1}


def _without(kind: str) -> Callable[[Sent], None]:
    def change(sent: Sent) -> None:
        del sent.contents[id_of(sent, kind)]

    return change


def _with(kind: str, content: bytes) -> Callable[[Sent], None]:
    def change(sent: Sent) -> None:
        sent.contents[id_of(sent, kind)] = content

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without("ArrayChunk"), "sent a message with missing pieces"),
        (_without("Message"), "sent a message with missing pieces"),
        (_with("Message", b""), "cannot be read (ValueError)"),
        (_with("Array", b"Array  2\0{}"), "cannot be read (KeyError)"),
        (_with("ConfigRecord", b"os.system  2\0ls"), "cannot be read (KeyError)"),
        (_with("ArrayRecord", b"ArrayRecord  9\0" + b"[" * 100_000), "cannot be read (RecursionError)"),
        (_with("RecordDict", b"\xff\xfe  1\0x"), "cannot be read (UnicodeDecodeError)"),
        (_with("ArrayChunk", bytes(LIMIT)), f"sent a message of more than {LIMIT} bytes"),
    ],
)
def test_pieces_that_cannot_be_read_are_a_problem_of_that_site(change: Any, words: str) -> None:
    sent = to_question(pieces())
    change(sent)
    found, _ = received(sent)
    problem = found["question 1"]
    assert type(problem) is Problem
    assert problem.reason.endswith(words)
    assert not problem.is_passing


@pytest.mark.parametrize("code", [*PASSING, ErrorCode.UNKNOWN, -1, 2**31 - 1])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("kind", ["train", "", "made up"])
def test_an_error_is_a_problem_whatever_it_says_of_itself(code: int, hidden: bool, kind: str) -> None:
    sent = reply(Error(code, "no"), "question 1")
    sent.proto.metadata.message_type = kind
    if hidden:  # in the pieces only
        sent.proto.ClearField("error")
    found, _ = received(sent)
    assert found == {"question 1": Problem("no", code in PASSING)}


def test_errors_and_answers_to_questions_that_are_not_open_are_not_looked_at() -> None:
    stray = to_question(pieces(), "question 7")
    error = reply(Error(0, "no"), "question 7")
    assert received(stray)[0] == {}
    assert received(error)[0] == {}
