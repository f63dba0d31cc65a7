"""Tiny Shakespeare (Karpathy, 2015): 1.1 million characters of plays, spoken by about 300 roles.

The task of McMahan et al. (2017): predict the next character of a role's speech; a client is a speaking role.
"""

import re
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase

import numpy as np
import torch
from torch import Tensor

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.origins import Address
from steelyard.data.store import Source, load
from steelyard.errors import InputError

FILE = "tinyshakespeare-input.txt"
SOURCE = Source(
    name="shakespeare",
    about="next characters in plays, 1.1 million characters, 65 classes, speaking roles as groups",
    licence="public domain (the plays); MIT (the collection, Andrej Karpathy)",
    files={FILE: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
    origins=(
        Address(
            "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
            "/data/tinyshakespeare/input.txt"
        ),
    ),
)

SYMBOLS = "\n !$&',-.3:;?" + ascii_uppercase + ascii_lowercase
CLASS_NAMES = ("newline", "space", *SYMBOLS[2:])
TEST_SHARE = 0.1
_NUMBERS = bytes.maketrans(SYMBOLS.encode("ascii"), bytes(range(len(SYMBOLS))))


def shakespeare(
    *, length: int = 80, stride: int = 10, roles: int | None = None, min_chars: int = 1000
) -> Dataset:
    """The next character after `length` others in plays, 65 classes; each speaking role is a group.

    A role has one row per `stride` characters of its speech. Only roles with at least `min_chars` characters
    are used: the `roles` longest ones, or all. Test rows come from the last tenth of each role's speech.
    """
    for name, value in (("length", length), ("stride", stride), ("roles", roles)):
        if value is not None and value < 1:
            raise InputError(f"data set 'shakespeare': {name} must be at least 1, not {value}.")
    spoken = speeches(load(SOURCE)[FILE].decode("ascii"))
    return windows(longest(list(spoken.values()), length, roles, min_chars), length, stride)


def speeches(text: str) -> dict[str, str]:
    """The whole speech of each role, in the order of the text."""
    spoken: dict[str, list[str]] = {}
    for speech in re.split(r"\n{2,}", text.strip()):
        heading, _, lines = speech.partition("\n")
        if heading.endswith(":") and lines:  # some headings have no lines
            spoken.setdefault(heading[:-1], []).append(f"{lines}\n")
    return {role: "".join(parts) for role, parts in spoken.items()}


def longest(texts: Sequence[str], length: int, count: int | None, min_chars: int) -> list[str]:
    """Texts with `min_chars` characters and with at least one training and one test window, longest first."""
    kept = [text for text in texts if len(text) >= min_chars and min(_cut(text)) > length]
    if not kept or (count is not None and count > len(kept)):
        raise InputError(
            f"data set 'shakespeare': {len(kept)} roles have at least {min_chars} characters and enough for "
            f"windows of {length}: take fewer roles, or lower min_chars or length."
        )
    return sorted(kept, key=len, reverse=True)[:count]


def windows(texts: Sequence[str], length: int, stride: int) -> Dataset:
    """Windows of each text and the characters that follow them; windows of the end of a text are test rows.

    No training row contains a character of the end. The table of windows is a view of the text, because
    windows overlap; row numbers are the positions at which they start.
    """
    characters = encode("".join(texts))
    table, targets = characters.unfold(0, length, 1)[:-1], characters[length:]
    train, test, start = [], [], 0
    for text in texts:
        cut, end = start + _cut(text)[0], start + len(text)
        train.append(torch.arange(start, cut - length, stride))
        test.append(torch.arange(cut, end - length, stride))
        start = end
    groups = torch.arange(len(texts)).repeat_interleave(torch.tensor([len(rows) for rows in train]))
    return Dataset(
        SOURCE.name,
        Examples(table, targets, torch.cat(train)),
        Examples(table, targets, torch.cat(test)),
        CLASS_NAMES,
        groups,
    )


def encode(text: str) -> Tensor:
    """The class number of each character."""
    codes = np.frombuffer(text.encode("ascii").translate(_NUMBERS), np.uint8)
    return torch.from_numpy(codes.astype(np.int64))


def _cut(text: str) -> tuple[int, int]:
    """The number of training characters and of test characters."""
    test = round(TEST_SHARE * len(text))
    return len(text) - test, test
