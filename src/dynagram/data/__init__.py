"""What networks are trained on and asked about: problems, data sets, files."""

from dynagram.data._data import Data as Data
from dynagram.data._data import Merged as Merged
from dynagram.data._data import check_inputs as check_inputs
from dynagram.data._data import check_targets as check_targets
from dynagram.data._files import load_array as load_array
from dynagram.data._files import load_arrays as load_arrays
from dynagram.data._files import load_data as load_data
from dynagram.data._sets import Dataset as Dataset
from dynagram.data._sets import digits as digits
from dynagram.data._sets import local_images as local_images
from dynagram.data._sets import swiss_roll as swiss_roll
