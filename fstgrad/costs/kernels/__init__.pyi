from . import alignments as alignments
