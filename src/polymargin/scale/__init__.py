"""Scale: machines for more rows than one kernel matrix can hold.

Landmarks are a feature map of the kernel; their machines follow from statistics of the classes, gathered in one pass.
Leaves are exact machines of the regions of a tree. Landmarks see the whole, leaves see the detail, and a pool of both
is nearly as good as one exact machine of all rows, at a cost that grows with the number of rows only.
"""

from polymargin.scale.plan import ScalePlan, plan_scale
from polymargin.scale.settings import ScaleSettings

__all__ = ["ScalePlan", "ScaleSettings", "plan_scale"]
