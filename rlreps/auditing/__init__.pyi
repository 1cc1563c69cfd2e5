from .audit import LABELLED as LABELLED
from .audit import LEADING as LEADING
from .audit import Audit as Audit
from .audit import FeatureFindings as FeatureFindings
from .audit import audit as audit
from .defects import Defect as Defect
from .measures import Health as Health
