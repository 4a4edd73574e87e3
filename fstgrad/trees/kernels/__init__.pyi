from . import arborescence as arborescence
from . import dense as dense
from . import elimination as elimination
from . import matrix_tree as matrix_tree
from . import projective as projective
from . import sampling as sampling
