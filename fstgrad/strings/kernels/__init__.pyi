from . import arrays as arrays
from . import batches as batches
from . import bigrams as bigrams
from . import chain as chain
from . import linear_chain as linear_chain
from . import log_passes as log_passes
from . import passes as passes
from . import tangents as tangents
