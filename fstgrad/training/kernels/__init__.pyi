from . import alignments as alignments
from . import templates as templates
