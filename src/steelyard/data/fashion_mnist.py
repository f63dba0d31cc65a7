"""Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 28×28 grey images of clothes, 60 000 + 10 000."""

from steelyard.data.dataset import Dataset
from steelyard.data.idx import idx_dataset
from steelyard.data.origins import Debian, Download
from steelyard.data.store import Source

SOURCE = Source(
    name="fashion-mnist",
    about="clothes, 28×28 grey, 60 000 + 10 000, 10 classes",
    licence="MIT (Zalando SE)",
    files={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    origins=(
        # The publisher offers no HTTPS here; the checksums above protect against changed files.
        Download("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        Debian("dataset-fashion-mnist", folder="usr/share/datasets/fashion-mnist"),
    ),
)

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# Of all pixels of the 60 000 training images, scaled to 0..1; the standard deviation divides by N.
MEAN, STD = 0.2860, 0.3530


def fashion_mnist() -> Dataset:
    """Zalando's clothing, 28×28 grey, 60 000 + 10 000 images of 10 classes."""
    return idx_dataset(SOURCE, CLASS_NAMES, MEAN, STD)
