"""Printed digits, drawn from a seed, in place of "Synthetic Digits" (Ganin and Lempitsky, 2015).

That data set, called SYN in work on domain adaptation, is no longer available. These images are similar: a
digit of random font, size, colour and angle on a background of one colour, a gradient or noise, sometimes
with half of another digit beside it. The fonts are those of matplotlib, so results do not depend on installed
fonts; another version of Pillow may round a few pixels differently.
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
OVERSAMPLING = 2  # shapes are drawn this much larger and then averaged, for smooth edges
MARGIN = 1.0  # in pixels, between a digit and the edge of its image
HEIGHTS = (15.0, 26.0)  # of a digit, in pixels
ANGLE = math.radians(30)
NEIGHBOUR = 0.4  # the share of images with half of another digit
CONTRAST = 0.35  # minimum difference in brightness, 0..1, between a digit and its background
SLOPE = 0.3  # maximum change of a colour channel along a gradient, 0..1
NOISE = 0.1  # maximum standard deviation of a noisy background, 0..1
BLUR = 0.7  # maximum radius, in pixels
BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue (ITU-R BT.601)

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def rendered_digits(count: int = 3500, test: int = 700, seed: int = 0) -> Dataset:
    """Printed digits, 32×32 colour, 10 classes, drawn from a seed, in place of Synthetic Digits.

    There are `count` training and `test` test images; all classes are equally frequent in both.
    """
    for name, value in (("count", count), ("test", test)):
        if value < 1:
            raise InputError(f"data set 'rendered-digits': {name} must be at least 1, not {value}.")
    pixels = _draw(count, seed, "train")[0].double().div(255)
    variance, mean = torch.var_mean(pixels, dim=(0, 2, 3), correction=0)
    scale = tuple(mean.tolist()), tuple(variance.sqrt().tolist())

    def part(size: int, name: str) -> Examples:
        return Examples(*_draw(size, seed, name), torch.arange(size), *scale)

    return Dataset(SOURCE.name, part(count, "train"), part(test, "test"), tuple("0123456789"))


@functools.lru_cache(maxsize=8)
def _draw(count: int, seed: int, part: str) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 32, 32] in bytes and their labels; cached, because many runs use the same images."""
    random = np.random.default_rng(derive(seed, "rendered-digits", part))
    labels = random.permutation(np.arange(count) % 10)
    images = np.stack([_image(random, int(label)) for label in labels])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def _image(random: np.random.Generator, digit: int) -> Bytes:
    """An image of one digit, [32, 32, 3]."""
    coverage = np.asarray(_shape(random, digit), np.float32)[:, :, None] / 255
    background, brightness = _background(random)
    blended = background + coverage * (_colour(random, brightness) - background)
    image = Image.fromarray(np.rint(255 * blended).astype(np.uint8))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(random.uniform(0, BLUR))))


@functools.cache
def _glyphs() -> list[list[Image.Image]]:
    """The shape of each digit in each font, cropped to its bounding box."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [[_glyph(folder / f"{name}.ttf", digit) for digit in "0123456789"] for name in FONTS]


def _glyph(file: Path, digit: str) -> Image.Image:
    """A digit about as high as the maximum of HEIGHTS, so that scaling it later loses no strokes."""
    size = round(OVERSAMPLING * HEIGHTS[1] / 0.7)  # digits of these fonts are 0.7 of the font size high
    font = ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (2 * size, 2 * size))
    ImageDraw.Draw(canvas).text((size // 2, size // 4), digit, 255, font)
    return canvas.crop(canvas.getbbox())


def _shape(random: np.random.Generator, digit: int) -> Image.Image:
    """How much of each pixel is covered, 0..255: the digit is fully in view, a neighbour at most by half."""
    glyphs = _glyphs()[random.integers(len(FONTS))]
    glyph, other = glyphs[digit], glyphs[random.integers(10)]
    angle = random.uniform(-ANGLE, ANGLE)
    cos, sin = math.cos(angle), math.sin(angle)
    extent = np.array([[cos, abs(sin)], [abs(sin), cos]]) @ glyph.size  # width and height after rotation
    canvas, room = OVERSAMPLING * SIDE, OVERSAMPLING * (SIDE - 2 * MARGIN)
    scale = min(OVERSAMPLING * random.uniform(*HEIGHTS) / glyph.height, room / extent.max())
    centre = canvas / 2 + random.uniform(-1, 1, 2) * (room - scale * extent) / 2
    drawn = _place(glyph, centre, scale, cos, sin)
    if random.uniform() < NEIGHBOUR:
        side = random.choice([-1, 1])
        to_edge = (canvas / 2 + side * (canvas / 2 - centre[0])) / cos
        beside = scale * (glyph.width + other.width) / 2 + OVERSAMPLING * 1.5
        position = centre + side * max(to_edge, beside) * np.array([cos, sin])
        drawn = ImageChops.lighter(drawn, _place(other, position, scale, cos, sin))
    return drawn.reduce(OVERSAMPLING)


def _place(
    glyph: Image.Image, centre: npt.NDArray[np.float64], scale: float, cos: float, sin: float
) -> Image.Image:
    """The glyph on an empty canvas, rotated and scaled, with its middle at `centre`."""
    matrix = np.array([[cos, sin], [-sin, cos]]) / scale  # from the canvas to the glyph
    offset = np.array(glyph.size) / 2 - matrix @ centre
    size = (OVERSAMPLING * SIDE, OVERSAMPLING * SIDE)
    coefficients = (*matrix[0], offset[0], *matrix[1], offset[1])
    return glyph.transform(size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


def _background(random: np.random.Generator) -> tuple[Floats, Floats]:
    """One colour, a gradient or noise, [32, 32, 3], and the brightness at both ends of the gradient, [2]."""
    kind = random.integers(3)
    ends = np.tile(random.random(3, np.float32), (2, 1))
    if kind == 1:
        ends[1] = np.clip(ends[1] + random.uniform(-SLOPE, SLOPE, 3), 0, 1)
    background = ends[0] + _ramp(random.uniform(0, 2 * math.pi)) * (ends[1] - ends[0])
    if kind == 2:
        noise = random.uniform(0, NOISE) * random.standard_normal(background.shape, np.float32)
        background = np.clip(background + noise.astype(np.float32), 0, 1)
    return background, ends @ BRIGHTNESS


def _ramp(angle: float) -> Floats:
    """Values from 0 to 1 across an image in the direction of `angle`, [32, 32, 1]."""
    centres = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE - 0.5
    x, y = math.cos(angle) * centres, math.sin(angle) * centres[:, None]
    return (0.5 + (x + y) / math.sqrt(2)).astype(np.float32)[:, :, None]


def _colour(random: np.random.Generator, brightness: Floats) -> Floats:
    """The first of 32 random colours with enough contrast to the background, or the one with the most."""
    colours = random.random((32, 3), np.float32)
    contrast = np.abs((colours @ BRIGHTNESS)[:, None] - brightness).min(axis=1)
    chosen: Floats = colours[np.minimum(contrast, CONTRAST).argmax()]
    return chosen
