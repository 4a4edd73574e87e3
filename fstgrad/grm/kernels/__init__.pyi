from . import counts as counts
from . import descent as descent
from . import design as design
from . import halfline as halfline
from . import moments as moments
from . import potentials as potentials
from . import sampling as sampling
from . import wide as wide
