"""The moments of (Σ w_k p_k^α)^(1/α) for Gaussians p_k, by Gauss-Legendre quadrature on each coordinate.

The line is cut into pieces that are short relative to the Gaussians with mass there. Where the Gaussians
have similar widths, all pieces have the same length. Elsewhere each client contributes pieces of its own
scale, and so does the barycentre for α → 0, which the one of a small α is close to.
"""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

NODES = 5  # quadrature nodes per piece
PIECE_SD = 1.5  # length of a piece, in standard deviations
EQUAL_PIECES = (16, 64)  # numbers of equal pieces to try, the smaller first, before pieces for each client
TAIL_SD = 8.0  # standard deviations beyond which a Gaussian has no mass
PIECES_PER_SIDE = 10  # pieces on either side of a client: beyond TAIL_SD, because p^α has longer tails
MIN_RELATIVE_SD = 1e-12  # smallest σ as a share of a coordinate's extent: float64 must tell nodes apart
BLOCK_NUMBERS = 1 << 19  # float64 numbers at a time, 4 MB


def moments_of_power_mean(
    means: Tensor, variances: Tensor, weights: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance [K] of the density ∝ (Σ w_k p_k^α)^(1/α), 0 < α < 1, for weights greater than 0.

    Coordinates in which all variances are 0 get the mean Σ w μ_k. Where only some are 0, these clients count
    as very narrow Gaussians.
    """
    centre = weights @ means
    offsets, largest = means - centre, variances.amax(dim=0)
    widths = variances.sqrt().maximum(MIN_RELATIVE_SD * (offsets.abs().amax(dim=0) + largest.sqrt()))
    low, high = (offsets - TAIL_SD * widths).amin(dim=0), (offsets + TAIL_SD * widths).amax(dim=0)
    needed = torch.where(largest > 0, (high - low) / (PIECE_SD * widths.amin(dim=0)), 0.0)
    mean, variance = torch.zeros_like(centre), torch.zeros_like(centre)
    own_pieces = (len(means) + 1) * (2 * PIECES_PER_SIDE + 1)
    for fewer, pieces in pairwise((0, *EQUAL_PIECES, math.inf)):
        chosen = ((needed > fewer) & (needed <= pieces)).nonzero().flatten()
        width = BLOCK_NUMBERS // (len(means) * NODES * int(min(pieces, own_pieces)))
        for block in torch.split(chosen, max(1, width)):
            gaussians = offsets[:, block], widths[:, block], weights
            if math.isinf(pieces):
                edges = _own_edges(*gaussians)
            else:
                edges = _equal_edges(low[block], high[block], int(pieces))
            mean[block], variance[block] = _integrate(*gaussians, alpha, edges)
    return centre + mean, variance


def _equal_edges(low: Tensor, high: Tensor, pieces: int) -> Tensor:
    """The edges [E, K] of pieces of equal length."""
    steps = torch.arange(-pieces, pieces + 1, 2, dtype=low.dtype).unsqueeze(1) / pieces
    return (low + high) / 2 + steps * (high - low) / 2


def _own_edges(centres: Tensor, widths: Tensor, weights: Tensor) -> Tensor:
    """The sorted edges [E, K] of pieces around each client and around the barycentre for α → 0."""
    precisions = weights.unsqueeze(1) / widths.square()
    total = precisions.sum(dim=0, keepdim=True)
    centres = torch.cat([centres, (precisions * centres).sum(dim=0, keepdim=True) / total])
    widths = torch.cat([widths, total.rsqrt()])
    steps = PIECE_SD * torch.arange(-PIECES_PER_SIDE, PIECES_PER_SIDE + 1, dtype=centres.dtype).view(-1, 1, 1)
    return (centres + steps * widths).flatten(end_dim=1).sort(dim=0).values


def _integrate(
    centres: Tensor, widths: Tensor, weights: Tensor, alpha: float, edges: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance [K] by quadrature on the pieces between the edges [E, K]."""
    nodes, node_weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(NODES))
    middles, halves = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    points = (middles.unsqueeze(1) + halves.unsqueeze(1) * nodes.view(-1, 1)).flatten(end_dim=1)
    lengths = (halves.unsqueeze(1) * node_weights.view(-1, 1)).flatten(end_dim=1)
    scores = (points - centres.unsqueeze(1)) / widths.unsqueeze(1)
    logs = weights.log().view(-1, 1, 1) - alpha * (scores.square() / 2 + widths.log().unsqueeze(1))
    log_density = torch.logsumexp(logs, dim=0) / alpha
    mass = lengths * (log_density - log_density.amax(dim=0)).exp()
    mass = mass / mass.sum(dim=0)
    mean = _symmetric_sum(mass * points)
    return mean, _symmetric_sum(mass * (points - mean).square())


def _symmetric_sum(values: Tensor) -> Tensor:
    """Sum from both ends to the middle, so that values symmetric about 0 sum to exactly 0."""
    return (values + values.flip(0)).sum(dim=0) / 2
