from .audit import audit as audit
from .defects import Defect as Defect
from .findings import LABELLED as LABELLED
from .findings import LEADING as LEADING
from .findings import Audit as Audit
from .findings import FeatureFindings as FeatureFindings
from .measures import Health as Health
