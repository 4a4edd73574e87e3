from . import count_rows as count_rows
from . import counts as counts
from . import descent as descent
from . import design as design
from . import integrals as integrals
from . import sampling as sampling
