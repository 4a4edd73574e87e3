from . import arguments as arguments
from . import composition as composition
from . import counts as counts
from . import pairs as pairs
from . import reduction as reduction
from . import rows as rows
from . import tables as tables
from . import tropical as tropical
