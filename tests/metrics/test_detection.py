import pytest
import torch
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from steelyard.metrics import detection


def found(weights: list[float], adversary: list[int]) -> dict[str, float]:
    return detection(torch.tensor(weights, dtype=torch.float64), torch.tensor(adversary).bool())


def test_adversaries_without_weight_are_found() -> None:
    assert found([0.0, 0.5, 0.0, 0.5], [1, 0, 1, 0]) == {
        "detection_auroc": 1.0,
        "detection_precision": 1.0,
        "detection_recall": 1.0,
    }


def test_by_hand() -> None:
    # Pairs (adversary, honest): .1 < .3, .1 < .2, .1 > .0; .4 > .3, .4 > .2, .4 > .0: 2 of 6.
    # Below half of a fifth: the honest one with 0 only... .1 is not below .1.
    scores = found([0.1, 0.3, 0.4, 0.2, 0.0], [1, 0, 1, 0, 0])
    assert scores["detection_auroc"] == pytest.approx(2 / 6)
    assert (scores["detection_precision"], scores["detection_recall"]) == (0.0, 0.0)


def test_ties_count_half_and_without_suspects_there_is_no_precision() -> None:
    assert found([0.25] * 4, [1, 0, 0, 1]) == {"detection_auroc": 0.5, "detection_recall": 0.0}


def test_heavy_adversaries_are_worse_than_chance() -> None:
    assert found([0.9, 0.05, 0.05], [1, 0, 0])["detection_auroc"] == 0.0


@pytest.mark.parametrize("adversary", [[1, 1, 1], [0, 0, 0]])
def test_one_kind_alone_has_no_scores(adversary: list[int]) -> None:
    assert found([0.2, 0.3, 0.5], adversary) == {}


@pytest.mark.parametrize("seed", range(20))
def test_the_scores_are_those_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(0, 6, (12,), generator=generator).double()  # many ties
    weights /= weights.sum()
    adversary = torch.rand(12, generator=generator) < 0.4
    adversary[0], adversary[1] = True, False
    scores = detection(weights, adversary)
    suspected = weights < 0.5 / 12
    assert scores["detection_auroc"] == pytest.approx(roc_auc_score(adversary, -weights))
    assert scores["detection_recall"] == pytest.approx(recall_score(adversary, suspected))
    if suspected.any():
        assert scores["detection_precision"] == pytest.approx(precision_score(adversary, suspected))
    else:
        assert "detection_precision" not in scores
