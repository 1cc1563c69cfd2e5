from .checkpoints import Checkpoints as Checkpoints
from .folder import RunFolder as RunFolder
from .progress import hidden as hidden
from .progress import progress_bar as progress_bar
