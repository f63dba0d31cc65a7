"""A learning rate that falls, and the best model in place of the last one.

Each client holds out a fifth of its digits. They are not trained on; they choose the round, and end the run.

python examples/schedule_and_best_model.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import steelyard as sy

images, labels = load_digits(return_X_y=True)
images = images.astype("float32") / 16
x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.3, random_state=0)

# Eight schools with 50 digits each: after a few rounds, more training makes the model surer, but no better.
schools = {f"school-{number}": (x_train[number:400:8], y_train[number:400:8]) for number in range(8)}

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

federation = sy.Federation(
    schools,
    model,
    sy.Algorithm(training=sy.Training(lr=0.3, momentum=0.9, epochs=5, schedule="cosine")),
    test=(x_test, y_test),  # only reported, never used to choose
    validation=0.2,  # the share that each school holds out
    monitor="nll",  # on these examples: `validation_nll`; smaller is better
    patience=8,  # stop after eight evaluations without a better value
    rounds=60,
)
result = federation.run()

for row in result.history:
    mark = "  <- best" if row["round"] == result.best_round else ""
    print(f"round {row['round']:2d}  validation nll {row['validation_nll']:.3f}{mark}")


def test_scores(trained: nn.Module) -> str:
    with torch.inference_mode():
        logits, truth = trained(torch.from_numpy(x_test)), torch.from_numpy(y_test)
        right = (logits.argmax(dim=1) == truth).float().mean()
        return f"accuracy {right:.3f}, nll {nn.functional.cross_entropy(logits, truth):.3f}"


print(f"\nstopped after {len(result.history)} of 60 rounds")
print(f"best: round {result.best_round} by validation nll {result.best_score:.3f}")
print(f"best model on test data: {test_scores(result.best_model)}")
print(f"last model on test data: {test_scores(result.model)}")
