"""Printed digits, drawn here: they stand in for "Synthetic Digits" (Ganin and Lempitsky, 2015).

That set, the SYN of work on domain adaptation, cannot be had any more. These are drawn in its manner: a digit
of some font, size, colour and angle on a background of one colour, a gradient or noise, at times with half of
another digit beside it. The fonts are those inside matplotlib, so results do not hang on what is installed;
another version of Pillow may round a few pixels differently.
"""

import functools
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from steelyard.data.dataset import Dataset
from steelyard.data.examples import Examples
from steelyard.data.store import Source
from steelyard.errors import InputError
from steelyard.seeds import derive

SOURCE = Source(
    name="rendered-digits",
    about="printed digits, 32×32 colour, as many as wanted, 10 classes; in place of Synthetic Digits",
    licence="none needed: drawn from a seed",
    bundled="steelyard",
)

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
SIDE = 32
FINE = 2  # shapes are drawn this much larger and then averaged, for smooth edges
MARGIN = 1.0  # in pixels, between a digit and the edge of its image
HEIGHTS = (15.0, 26.0)  # of a digit, in pixels
ANGLE = math.radians(30)
NEIGHBOUR = 0.4  # the share of images with another digit half in view
CONTRAST = 0.35  # in brightness, 0..1, between a digit and all that is behind it
SLOPE = 0.3  # how far a gradient moves a colour at most, 0..1
NOISE = 0.1  # the largest standard deviation of a noisy background, 0..1
BLUR = 0.7  # the largest radius, in pixels
BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue (ITU-R BT.601)

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def rendered_digits(count: int = 3500, test: int = 700, seed: int = 0) -> Dataset:
    """Printed digits, 32×32 colour, drawn from a seed, of 10 classes; they stand in for Synthetic Digits.

    There are `count` images to train on and `test` others; all classes are equally frequent in both.
    """
    for name, value in (("count", count), ("test", test)):
        if value < 1:
            raise InputError(f"data set 'rendered-digits': {name} must be at least 1, not {value}.")
    shares = _drawn(count, seed, "train")[0].double().div(255)
    variance, mean = torch.var_mean(shares, dim=(0, 2, 3), correction=0)
    scale = tuple(mean.tolist()), tuple(variance.sqrt().tolist())

    def part(size: int, name: str) -> Examples:
        return Examples(*_drawn(size, seed, name), torch.arange(size), *scale)

    return Dataset(SOURCE.name, part(count, "train"), part(test, "test"), tuple("0123456789"))


@functools.lru_cache(maxsize=8)
def _drawn(count: int, seed: int, part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] in bytes and their labels; kept, because many runs share one set."""
    random = np.random.default_rng(derive(seed, "rendered-digits", part))
    labels = random.permutation(np.arange(count) % 10)
    images = np.stack([_image(random, int(label)) for label in labels])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def _image(random: np.random.Generator, digit: int) -> Bytes:
    """One digit, [32, 32, 3]."""
    covered = np.asarray(_shape(random, digit), np.float32)[:, :, None] / 255
    behind, brightness = _background(random)
    mixed = behind + covered * (_colour(random, brightness) - behind)
    image = Image.fromarray(np.rint(255 * mixed).astype(np.uint8))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(random.uniform(0, BLUR))))


@functools.cache
def _glyphs() -> list[list[Image.Image]]:
    """The shape of each digit in each font, cut out tightly."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [[_glyph(folder / f"{name}.ttf", digit) for digit in "0123456789"] for name in FONTS]


def _glyph(file: Path, digit: str) -> Image.Image:
    """A digit about as high as the highest is drawn, so that none is enlarged much or loses its strokes."""
    size = round(FINE * HEIGHTS[1] / 0.7)  # the digits of these fonts are 0.7 of their size high
    font = ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (2 * size, 2 * size))
    ImageDraw.Draw(canvas).text((size // 2, size // 4), digit, 255, font)
    return canvas.crop(canvas.getbbox())


def _shape(random: np.random.Generator, digit: int) -> Image.Image:
    """How much of each pixel a digit covers, 0..255: it is all in view, and its neighbour half at most."""
    glyphs = _glyphs()[random.integers(len(FONTS))]
    glyph, other = glyphs[digit], glyphs[random.integers(10)]
    angle = random.uniform(-ANGLE, ANGLE)
    cos, sin = math.cos(angle), math.sin(angle)
    across = np.array([[cos, abs(sin)], [abs(sin), cos]]) @ glyph.size  # how wide and high it is when turned
    room = FINE * (SIDE - 2 * MARGIN)
    scale = min(FINE * random.uniform(*HEIGHTS) / glyph.height, room / across.max())
    centre = FINE * SIDE / 2 + random.uniform(-1, 1, 2) * (room - scale * across) / 2
    drawn = _placed(glyph, centre, scale, cos, sin)
    if random.uniform() < NEIGHBOUR:
        side = random.choice([-1, 1])
        to_edge = (FINE * SIDE / 2 + side * (FINE * SIDE / 2 - centre[0])) / cos
        beside = scale * (glyph.width + other.width) / 2 + FINE * 1.5
        place = centre + side * max(to_edge, beside) * np.array([cos, sin])
        drawn = ImageChops.lighter(drawn, _placed(other, place, scale, cos, sin))
    return drawn.reduce(FINE)


def _placed(
    glyph: Image.Image, centre: npt.NDArray[np.float64], scale: float, cos: float, sin: float
) -> Image.Image:
    """The glyph on an empty canvas, turned about its middle, which comes to `centre`."""
    turn = np.array([[cos, sin], [-sin, cos]]) / scale  # from the canvas to the glyph
    offset = np.array(glyph.size) / 2 - turn @ centre
    size = (FINE * SIDE, FINE * SIDE)
    way = (*turn[0], offset[0], *turn[1], offset[1])
    return glyph.transform(size, Image.Transform.AFFINE, way, Image.Resampling.BILINEAR)


def _background(random: np.random.Generator) -> tuple[Floats, Floats]:
    """One colour, a gradient or noise, [32, 32, 3], and the brightness of its least and most bright end."""
    kind = random.integers(3)
    ends = np.tile(random.random(3, np.float32), (2, 1))
    if kind == 1:
        ends[1] = np.clip(ends[1] + random.uniform(-SLOPE, SLOPE, 3), 0, 1)
    behind = ends[0] + _ramp(random.uniform(0, 2 * math.pi)) * (ends[1] - ends[0])
    if kind == 2:
        noise = random.uniform(0, NOISE) * random.standard_normal(behind.shape, np.float32)
        behind = np.clip(behind + noise.astype(np.float32), 0, 1)
    return behind, ends @ BRIGHTNESS


def _ramp(angle: float) -> Floats:
    """From 0 to 1 across an image, [32, 32, 1]."""
    places = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE - 0.5
    x, y = math.cos(angle) * places, math.sin(angle) * places[:, None]
    return (0.5 + (x + y) / math.sqrt(2)).astype(np.float32)[:, :, None]


def _colour(random: np.random.Generator, behind: Floats) -> Floats:
    """A colour that is far enough from each brightness behind it: the first of some, or else the farthest."""
    drawn = random.random((32, 3), np.float32)
    contrast = np.abs((drawn @ BRIGHTNESS)[:, None] - behind).min(axis=1)
    chosen: Floats = drawn[np.minimum(contrast, CONTRAST).argmax()]
    return chosen
