"""Model files: a fitted model in one file, without pickle.

A model file is a zip archive in the format of skops, plus a manifest. Loading it creates objects of known classes and
sets their attributes; no function named in a file is ever called. The file is guarded in three ways.

**Types.** Only classes of polymargin and the estimators, arrays and sparse matrices that skops trusts by default are
loaded. Anything else (functions, methods, other libraries' classes) is refused by name, when saving and when loading.

**Damage.** A digest (SHA-256) of the whole file and one of every member make any lost or altered byte an error, never a
wrong answer. A digest tells damage, not authorship: whoever makes a file can make its digests, and a model by a
stranger may give any answers it likes. Sign files, or keep their digests elsewhere, where that matters.

**Size.** What a member unpacks to is declared, checked and bounded before anything is unpacked, and so is the size of
every array.

`save` and `load` are also in `polymargin` itself. `describe` reads what a file says about its model without loading it.
"""

from polymargin.persistence._errors import ModelFileError, ModelVersionWarning
from polymargin.persistence._files import describe, load, save

__all__ = ["ModelFileError", "ModelVersionWarning", "describe", "load", "save"]
