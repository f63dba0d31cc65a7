"""What is wrong with a run that came to its end: then its model is not what the user thinks it is."""

from collections.abc import Sequence

from steelyard.types import Row

MAX_UNUSED = 3  # rounds in a row at the end that may leave the model as it was


def concerns(history: Sequence[Row], model_is_finite: bool) -> tuple[str, ...]:
    """One sentence for each thing that is wrong with a run; `history` has a row for each round."""
    return tuple(filter(None, (_unused(history), _not_finite(history, model_is_finite))))


def _unused(history: Sequence[Row]) -> str:
    used = [number for number, row in enumerate(history, start=1) if row.get("used")]
    unused = len(history) - (used[-1] if used else 0)
    look = "the status of each client has the reasons."
    if history and not used:
        return f"no round changed the model: no reply was used, or too few were usable; {look}"
    if unused >= MAX_UNUSED:
        return f"the last {unused} rounds did not change the model, which is that of round {used[-1]}; {look}"
    return ""


def _not_finite(history: Sequence[Row], model_is_finite: bool) -> str:
    if not model_is_finite:
        return "the model is not finite: it has values that are infinite or not a number."
    last = history[-1] if history else {}
    scores = {name: last[name] for name in ("nll", "mse") if name in last}
    unknown = any(score is None or score != score for score in scores.values())  # a record has None for NaN
    if unknown or last.get("unscored"):
        return "the score of the test set is not a number; look for NaN or infinity in its inputs."
    return ""
