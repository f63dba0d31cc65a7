"""Sequences of different lengths: a packed GRU reads a digit column by column, without the empty columns.

python examples/variable_length.py
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset

import steelyard as sy


class Columns(Dataset):
    """Digits as sequences of columns [length, 8]; narrow digits are short."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        columns = self.images[number].T
        return columns[columns.any(dim=1)], self.labels[number]


def collate(items: list[tuple[Tensor, Tensor]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A batch: (sequences [N, longest, 8], lengths [N]), labels [N]."""
    sequences, labels = zip(*items, strict=True)
    lengths = torch.tensor([len(each) for each in sequences])
    return (pad_sequence(sequences, batch_first=True), lengths), torch.stack(labels)


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, sequences: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(sequences, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return self.head(last[0])


digits = load_digits()
images, labels = torch.tensor(digits.images).float() / 16, torch.tensor(digits.target)
train = Columns(images[:1300], labels[:1300])
schools = [
    sy.Client(f"school-{number}", torch.utils.data.Subset(train, range(number, 1300, 4)), collate_fn=collate)
    for number in range(4)
]
test = sy.examples(Columns(images[1300:], labels[1300:]), collate_fn=collate)

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
federation = sy.Federation(
    schools, Reader(), sy.Algorithm(training={"optimizer": "adam", "lr": 0.01}), test=test, rounds=10
)
result = federation.run()

lengths = torch.tensor([len(columns) for columns, _ in train])
print(f"columns of a digit: {lengths.min()} to {lengths.max()}")
for row in result.history:
    print(f"round {row['round']:2d}  accuracy {row['accuracy']:.3f}  nll {row['nll']:.3f}")
print(f"test accuracy {result.accuracy:.3f}")
