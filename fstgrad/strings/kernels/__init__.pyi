from . import arguments as arguments
from . import batches as batches
from . import chain as chain
from . import classes as classes
from . import linear_chain as linear_chain
from . import log_passes as log_passes
from . import packed_chains as packed_chains
from . import passes as passes
