from . import rows as rows
from . import sums as sums
