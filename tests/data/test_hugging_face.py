"""Data sets of Hugging Face: read as tensors, with columns chosen by name."""

from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.data.clients import Client
from steelyard.data.examples import DatasetExamples, StreamExamples, examples
from steelyard.errors import InputError

datasets = pytest.importorskip("datasets")

TOKENS = [[row, row + 1] for row in range(6)]
LABELS, TEXTS = [0, 1, 2, 0, 1, 2], ["a", "b", "c", "d", "e", "f"]
TABLE = {"input_ids": TOKENS, "attention_mask": [[1, 1]] * 6, "label": LABELS}


def test_a_data_set_of_tokens_comes_as_dicts_of_tensors() -> None:
    data = examples(datasets.Dataset.from_dict(TABLE))
    assert isinstance(data, DatasetExamples)
    inputs, targets = data.batch(torch.tensor([4, 1]))
    assert isinstance(inputs, dict)
    assert list(inputs) == ["input_ids", "attention_mask"]
    assert inputs["input_ids"].tolist() == [[4, 5], [1, 2]]
    assert targets is not None
    assert targets.tolist() == [1, 1]
    assert data.labels.tolist() == LABELS
    assert data.input_shape is None


def test_the_target_is_a_column_by_name() -> None:
    table = datasets.Dataset.from_dict({**TABLE, "income": [0.5] * 6})
    inputs, targets = examples(table, target="income").span(0, 2)
    assert list(inputs) == ["input_ids", "attention_mask", "label"]
    assert targets is not None
    assert targets.tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match="unknown target 'incme' of rome: did you mean 'income'"):
        examples(table, target="incme", name="rome")
    client = Client("rome", table, table, target="income")
    assert client.test is not None
    assert client.test.labels.tolist() == [0.5] * 6
    assert client.own_code


@pytest.mark.parametrize("texts", [TEXTS, [[text] for text in TEXTS]], ids=["text", "lists of text"])
def test_columns_of_text_are_refused_by_name(texts: Any) -> None:
    table = datasets.Dataset.from_dict({**TABLE, "review": texts})
    with pytest.raises(InputError, match=r"rome: column 'review' is text; tokenise it first, or .*remove"):
        examples(table, name="rome")
    assert len(examples(table.remove_columns("review"))) == 6


def test_a_target_of_text_is_refused_by_name() -> None:
    table = datasets.Dataset.from_dict({"x": [1.0, 2.0], "kind": ["cat", "dog"]})
    with pytest.raises(InputError, match=r"rome: column 'kind' is text; map the classes to numbers 0, 1"):
        examples(table, target="kind", name="rome")


def test_columns_that_the_user_chose_are_kept() -> None:
    table = datasets.Dataset.from_dict({**TABLE, "review": TEXTS})
    chosen = table.with_format("torch", columns=["input_ids", "label"])
    inputs, _ = examples(chosen).span(0, 2)
    assert list(inputs) == ["input_ids"]
    inputs, _ = examples(table.with_format("numpy", columns=["input_ids", "label"])).span(0, 2)
    assert list(inputs) == ["input_ids"]


def test_a_data_set_that_tokenises_as_it_is_read_stays_as_it_is() -> None:
    table = datasets.Dataset.from_dict({"review": TEXTS, "label": LABELS})

    def tokenise(batch: dict[str, list[Any]]) -> dict[str, list[Tensor]]:
        ids = [torch.tensor([ord(text)]) for text in batch["review"]]
        return {"input_ids": ids, "labels": [torch.tensor(label) for label in batch["label"]]}

    inputs, targets = examples(table.with_transform(tokenise)).batch(torch.tensor([2]))
    assert isinstance(inputs, dict)
    assert inputs["input_ids"].tolist() == [[ord("c")]]
    assert targets is not None
    assert targets.tolist() == [2]


def test_sequences_of_different_lengths_need_a_collate_fn() -> None:
    table = datasets.Dataset.from_dict({"input_ids": [[1], [2, 3]], "label": [0, 1]})
    with pytest.raises(InputError, match="rome: items differ in shape; give a collate_fn"):
        examples(table, name="rome").span(0, 2)


def test_a_tokenizer_s_collator_pads_the_batches() -> None:
    collators = pytest.importorskip("transformers.data.data_collator")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 1}, unk_token="[PAD]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    table = datasets.Dataset.from_dict({"input_ids": [[1], [1, 1]], "label": [0, 1]})
    data = examples(table, collate_fn=collators.DataCollatorWithPadding(tokenizer))
    inputs, targets = data.span(0, 2)
    assert type(inputs) is dict
    assert inputs["input_ids"].tolist() == [[1, 0], [1, 1]]
    assert targets is not None
    assert targets.tolist() == [0, 1]


def test_a_streamed_data_set_is_a_stream() -> None:
    table = datasets.Dataset.from_dict(TABLE).to_iterable_dataset()
    data = examples(table)
    assert isinstance(data, StreamExamples)
    assert len(data) == 6
    [(inputs, targets), _] = data.passes(4)
    assert isinstance(inputs, dict)
    assert inputs["input_ids"].tolist() == TOKENS[:4]
    assert targets is not None
    assert targets.tolist() == LABELS[:4]


def test_of_several_splits_one_must_be_chosen() -> None:
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_dict(TABLE)})
    with pytest.raises(InputError, match=r"rome: .*splits.*'train'"):
        examples(splits, name="rome")
