"""Whether what a rule says of the clients goes with how well they are served."""

from collections.abc import Mapping

from torch import Tensor


def coupling(findings: Mapping[str, Tensor], accuracy: Tensor) -> dict[str, float]:
    """Spearman's rank correlation of each finding [J] (weight, reliability, ...) with client accuracy [J].

    A client without an accuracy (nan) is left out. What has no meaning is left out too: a correlation of
    fewer than three clients, or of something that is the same for all.
    """
    known = ~accuracy.isnan()
    values = {name: spearman(finding[known], accuracy[known]) for name, finding in findings.items()}
    return {f"{name}_accuracy_spearman": value for name, value in values.items() if value is not None}


def spearman(first: Tensor, second: Tensor) -> float | None:
    """The correlation of the ranks, ties sharing theirs; None where it is not defined."""
    if len(first) < 3:
        return None
    left, right = ranks(first), ranks(second)
    left, right = left - left.mean(), right - right.mean()
    scale = (left.square().sum() * right.square().sum()).sqrt()
    return float((left @ right) / scale) if bool(scale > 0) else None


def ranks(values: Tensor) -> Tensor:
    """From 1; equal values share the mean of theirs."""
    below = (values.unsqueeze(1) > values).sum(dim=1)
    alike = (values.unsqueeze(1) == values).sum(dim=1)
    return below + (alike + 1).double() / 2
