"""What networks are trained on and asked about: problems, data sets, files."""

from dynagram.data._data import Data
from dynagram.data._files import load_array, load_arrays, load_data
from dynagram.data._sets import Dataset, digits, local_images, swiss_roll

__all__ = [
    "Data",
    "Dataset",
    "digits",
    "load_array",
    "load_arrays",
    "load_data",
    "local_images",
    "swiss_roll",
]
