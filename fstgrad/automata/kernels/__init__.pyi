from . import arcs as arcs
from . import composition as composition
from . import counts as counts
from . import levels as levels
from . import reduction as reduction
from . import rows as rows
from . import tables as tables
from . import tropical as tropical
