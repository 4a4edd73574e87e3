"""The settings of an estimator by name, as in scikit-learn, which need not be installed."""

import inspect
from typing import Any, TypeVar

from fstgrad.core.errors import InvalidInputError

Self = TypeVar("Self", bound="Estimator")


class Estimator:
    """Settings are the arguments of the constructor, stored as attributes with the same names."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in self._settings()}

    def set_params(self: Self, **settings: Any) -> Self:
        """Change settings by name.

        Raises
        ------
        InvalidInputError
            If no setting has this name.
        """
        known = self._settings()
        for name, value in settings.items():
            if name not in known:
                raise InvalidInputError(f"no setting {name!r}; choose one of {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn reads before a search or a validation of strings."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, one_d_labels=False),
            input_tags=InputTags(string=True, two_d_array=False, sparse=False),
        )

    def __repr__(self) -> str:
        """Return the class with the settings that are not the defaults."""
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _settings(self) -> list[str]:
        return list(inspect.signature(type(self).__init__).parameters)[1:]
