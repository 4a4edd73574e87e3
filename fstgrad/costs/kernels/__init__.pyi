from . import alignments as alignments
from . import arrays as arrays
