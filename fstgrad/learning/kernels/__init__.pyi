from . import alignments as alignments
from . import optimizers as optimizers
from . import templates as templates
from . import windows as windows
from . import word_graphs as word_graphs
