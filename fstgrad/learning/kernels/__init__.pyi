from . import alignments as alignments
from . import steps as steps
from . import templates as templates
from . import windows as windows
