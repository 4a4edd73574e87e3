"""The old name of `fstgrad.training.templates` and `template_features`, kept for one release."""

from fstgrad.training.template_features import TemplateFeatures  # noqa: F401
from fstgrad.training.templates import *  # noqa: F403
