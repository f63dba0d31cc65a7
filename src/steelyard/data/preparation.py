"""Columns of a table as inputs of a model, fitted on training rows with scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from steelyard.data.tables import Column
from steelyard.errors import InputError


@dataclass(frozen=True, eq=False)
class Preparation:
    """A fitted `ColumnTransformer` whose output features are in the order of the columns.

    Numbers: missing values become the median, then the training rows get mean 0 and variance 1. A column that
    is constant in training is 0. If training rows had missing values, a further feature is 1 where they are.
    Categories: one-hot over those seen in training; a missing or new category is 0 in all features.
    """

    columns: tuple[Column, ...]
    transformer: Any
    order: npt.NDArray[np.intp]

    @classmethod
    def fit(cls, columns: Sequence[Column], rows: Tensor) -> "Preparation":
        """Fit on these rows of the table and on no others."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import MissingIndicator, SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

        if len(rows) == 0:
            raise InputError("a preparation needs at least one training row to fit.")
        train = _read(columns, rows)
        known = [np.unique(column[~np.isnan(column)]) for column in train.T]
        numeric = [place for place, column in enumerate(columns) if column.numeric]
        varying = [place for place in numeric if len(known[place]) > 1]
        constant = [place for place in numeric if len(known[place]) <= 1]
        missing = [place for place in numeric if np.isnan(train[:, place]).any()]
        coded = [place for place in range(len(columns)) if place not in numeric and len(known[place])]
        one_hot = OneHotEncoder(
            categories=[known[place] for place in coded], handle_unknown="ignore", sparse_output=False
        )
        transformer = ColumnTransformer(
            [
                ("scaled", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), varying),
                ("constant", FunctionTransformer(np.zeros_like), constant),
                ("missing", MissingIndicator(features="all"), missing),
                ("one-hot", one_hot, coded),
            ]
        ).fit(train)
        # The column of each output feature; a stable sort by it puts the features in column order.
        places = [*varying, *constant, *missing, *(place for place in coded for _ in known[place])]
        return cls(tuple(columns), transformer, np.argsort(places, kind="stable"))

    def apply(self, rows: Tensor) -> Tensor:
        """The inputs of these rows, [n, features]."""
        return torch.from_numpy(self.transformer.transform(_read(self.columns, rows))[:, self.order]).float()


def _read(columns: Sequence[Column], rows: Tensor) -> npt.NDArray[np.float64]:
    """Values and codes of these rows, [n, columns], NaN where missing."""
    values = [column.values[rows].numpy() for column in columns]
    pairs = zip(columns, values, strict=True)
    return np.stack(
        [part if column.numeric else np.where(part < 0, np.nan, part) for column, part in pairs], 1
    )
