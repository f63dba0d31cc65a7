import pytest
import torch
from torch import nn

import steelyard as sy


def test_a_lazy_model_is_refused_until_it_was_called_once() -> None:
    inputs, labels = torch.randn(8, 5), torch.arange(8) % 2
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(
        sy.InputError, match=r"^the shape of 0\.weight is not known yet.* call the model once"
    ):
        sy.Federation({"a": (inputs, labels)}, model)
    model(inputs)
    sy.Federation({"a": (inputs, labels)}, model, rounds=1).run()
