from . import agents as agents
from . import app as app
from . import auditing as auditing
from . import cumulants as cumulants
from . import encoders as encoders
from . import envs as envs
from . import errors as errors
from . import experiments as experiments
from . import explore as explore
from . import losses as losses
from . import operators as operators
from . import plotting as plotting
from . import report as report
from . import runs as runs
from . import sources as sources
from . import stats as stats
from . import streaming as streaming
from . import study as study
from . import subspace as subspace
from . import successor as successor
from . import training as training
from . import worlds as worlds
from .auditing.audit import audit as audit
from .study.compare import compare as compare

__version__: str
