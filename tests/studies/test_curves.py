from pathlib import Path

import pytest

import steelyard as sy
from steelyard.report.curves import draw_curves
from steelyard.studies.curves import Curve, curve_of, groups_of

QUICK = {"data.clients": 3, "training.steps": 1}


def run(out: Path, seed: int, **settings: object) -> Path:
    result = sy.run("fedavg", out=out, seed=seed, **{"rounds": 3, **QUICK, **settings})
    assert result.path is not None
    return result.path


def test_a_curve_has_means_and_deviations_of_the_rounds_that_all_runs_have(tmp_path: Path) -> None:
    paths = [run(tmp_path, 0), run(tmp_path, 1, rounds=2)]
    curve = curve_of(paths, "accuracy")
    values = [[row["accuracy"] for row in sy.Run(path).rounds[:2]] for path in paths]
    assert (curve.rounds, curve.runs) == ((1, 2), 2)
    assert curve.means == pytest.approx([(a + b) / 2 for a, b in zip(*values, strict=True)])
    assert curve.sds == pytest.approx([abs(a - b) / 2**0.5 for a, b in zip(*values, strict=True)])
    assert curve_of(paths[:1], "accuracy").sds == (None,) * 3


def test_runs_are_grouped_by_their_settings(tmp_path: Path) -> None:
    first, other, second = run(tmp_path, 0), run(tmp_path, 0, rounds=2), run(tmp_path, 1)
    assert groups_of([first, other, second]) == [[first, second], [other]]


def test_any_number_of_curves_gives_a_picture(tmp_path: Path) -> None:
    flat = Curve((1,), (0.5,), (None,), 1)
    band = Curve((1, 2, 3), (0.1, 0.2, 0.3), (0.0, None, 0.1), 3)
    nothing = Curve((), (), (), 2)
    names = [f"_name $x_{{{number}" * 3 for number in range(20)]
    for number, curves in enumerate(
        ({"a": flat}, {"a": band, "b": nothing}, dict.fromkeys(names, band), {"": nothing})
    ):
        path = tmp_path / f"{number}.png"
        draw_curves({"accuracy": curves, "nll": curves}, "A title", path)
        assert path.stat().st_size > 1000
