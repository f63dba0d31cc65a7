"""A class for each pixel: find the stroke of a digit in a noisy image. Grey pixels do not count.

python examples/segmentation.py
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import steelyard as sy

PAPER, STROKE, EITHER = 0, 1, 255


class Stroke(nn.Module):
    """From images [N, 1, 8, 8] to logits [N, 2, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images))


def stroke_iou(logits: Tensor, truth: Tensor) -> Tensor:
    """The mean over images of: pixels found and true, of those found or true."""
    counted, found, true = truth != EITHER, logits.argmax(dim=1) == STROKE, truth == STROKE
    both = (found & true).sum(dim=(1, 2))
    return both / ((found | true) & counted).sum(dim=(1, 2))


clean = torch.tensor(load_digits().images).float() / 16
masks = torch.where(clean > 0.6, STROKE, torch.where(clean < 0.3, PAPER, EITHER))
noisy = clean + 0.4 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
images = noisy.unsqueeze(1)

schools = {f"school-{number}": (images[number:1300:4], masks[number:1300:4]) for number in range(4)}
torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
federation = sy.Federation(
    schools,
    Stroke(),
    sy.Algorithm(training={"lr": 0.1, "momentum": 0.9}),  # the loss is found: cross-entropy of pixels
    test=(images[1300:], masks[1300:]),
    task=sy.Task(ignore_index=EITHER),
    metrics={"stroke_iou": stroke_iou},
    rounds=6,
)
result = federation.run()

for row in result.history:
    print(f"round {row['round']}  accuracy of a pixel {row['accuracy']:.3f}  IoU {row['stroke_iou']:.3f}")
with torch.inference_mode():
    found = result.model(images[1300:1301]).argmax(dim=1)[0]
for seen, stroke in zip(images[1300, 0].clamp(0, 0.99) * 4, found, strict=True):
    print("".join(" .+#"[int(each)] for each in seen), "  ", "".join(" #"[int(each)] for each in stroke))
print(f"test accuracy {result.accuracy:.3f}")
