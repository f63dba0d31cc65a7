"""One client and its examples."""

import copy
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import nn

from steelyard.data.data_frames import FrameForm, Target, form_of
from steelyard.data.dataset_examples import Collate
from steelyard.data.examples import AnyExamples, ArrayExamples, Examples, examples
from steelyard.errors import InputError
from steelyard.nn.module_checks import check_module
from steelyard.seeds import seeded
from steelyard.types import ClientId


class Client:
    """One client of the federation: an id, its training and test examples and, optionally, its own model."""

    def __init__(
        self,
        id: ClientId,
        train: Any,
        test: Any = None,
        held_out: Any = None,
        model: nn.Module | None = None,
        *,
        target: Target | None = None,
        collate_fn: Collate | None = None,
    ) -> None:
        """`train`, `test` and `held_out` are anything that `sy.examples` takes.

        `test` may also be a function without arguments that returns such data; it is called on first use.
        `held_out` examples are not trained on: the client fits the temperature of the shared model on them.
        `model` is the client's own model, for runs that share only the head.
        `target` and `collate_fn` are those of `sy.examples`, for all three.
        """
        self.id = str(id)
        self._options: dict[str, Any] = {"target": target, "collate_fn": collate_fn}
        self.train = examples(train, name=f"client {id!r}, train", **self._options)
        self.held_out = (
            None if held_out is None else examples(held_out, name=f"client {id!r}, held out", **self._options)
        )
        if model is not None:
            check_module(f"the model of client {id!r}", model)
        self.model, self._dtype = model, torch.float32
        self.form = form_of([self.train, self.held_out], f"client {id!r}, train")
        self._test = test if callable(test) else self._check_test(test)
        if self.form is not None:
            vars(self).update(self._in_form(self.form))

    @cached_property
    def test(self) -> AnyExamples | None:
        if not callable(self._test):
            return self._test
        with seeded(0, self.id, "test data"):  # the same data in whichever process they are first used
            found = self._test()
        return self._check_test(self._test if isinstance(found, Iterator) else found)

    @property
    def own_code(self) -> bool:
        """Whether code of the user's own runs when its data are read."""
        return any(
            part is not None and not isinstance(part, Examples | ArrayExamples)
            for part in (self.train, self.held_out, self._test)
        )

    def to(self, dtype: torch.dtype) -> "Client":
        """The same client with data for models of this floating-point type, unless it has its own model."""
        if self.model is not None:
            dtype = input_dtype(self.model)
        parts = self.parts
        changed = {name: part.to(dtype) for name, part in parts.items()}
        if dtype == self._dtype and all(changed[name] is part for name, part in parts.items()):
            return self
        client = copy.copy(self)
        vars(client).pop("test", None)
        vars(client).update(changed, _dtype=dtype)
        return client

    def with_form(self, form: FrameForm) -> "Client":
        """The same client with the columns of its frames in the order of this form."""
        client = copy.copy(self)
        vars(client).pop("test", None)
        vars(client).update(self._in_form(form), form=form)
        return client

    @property
    def parts(self) -> dict[str, AnyExamples]:
        """Its examples by the name of their attribute; test data that a function will return are left out."""
        found = {"train": self.train, "held_out": self.held_out, "_test": self._test}
        return {name: part for name, part in found.items() if part is not None and not callable(part)}

    def _in_form(self, form: FrameForm) -> dict[str, AnyExamples]:
        words = {"train": "train", "held_out": "held out", "_test": "test"}
        return {
            name: form.fit(part, f"client {self.id!r}, {words[name]}") for name, part in self.parts.items()
        }

    def _check_test(self, data: Any) -> AnyExamples | None:
        if data is None:
            return None
        where = f"client {self.id!r}, test"
        found = examples(data, name=where, **self._options).to(self._dtype)
        return found if self.form is None else self.form.fit(found, where)


def as_client(id: ClientId, data: Any) -> Client:
    return not_empty(data if isinstance(data, Client) else Client(id, data))


def not_empty(client: Client) -> Client:
    if len(client.train) == 0:
        raise InputError(f"client {client.id!r} has no examples; leave it out or give it some.")
    return client


def input_dtype(model: nn.Module) -> torch.dtype:
    """The floating-point type of the inputs that a model wants: that of its first parameter."""
    return next((parameter.dtype for parameter in model.parameters()), torch.float32)
