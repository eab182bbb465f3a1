"""Joint distributions of (x, y) with known mutual information, to check estimators against.

    x, y = TASKS["cubic-4"].sample(64, seed=0)
    TASKS["cubic-4"].mutual_information  # 4.0 nats

`TASKS` holds ready ones by name; the classes make others. Where a family is a conditional too, its
task is called Joint: `mibounds.GaussianMixture` is a q(y|x), `JointGaussianMixture` a p(x, y).
"""

from __future__ import annotations

from mibounds.tasks.base import Task
from mibounds.tasks.gaussians import CorrelatedGaussian, JointGaussian
from mibounds.tasks.labels import DiscreteTable, LabelledUniform
from mibounds.tasks.maps import Asinh, Mixing, NormalCDF, SignedPower, Spiral, SwissRoll
from mibounds.tasks.mixtures import JointGaussianMixture
from mibounds.tasks.student_t import JointStudentT, MultivariateStudentT
from mibounds.tasks.transforms import Transformed
from mibounds.tasks.uniforms import UniformNoise

__all__ = [
    "TASKS",
    "Asinh",
    "CorrelatedGaussian",
    "DiscreteTable",
    "JointGaussian",
    "JointGaussianMixture",
    "JointStudentT",
    "LabelledUniform",
    "Mixing",
    "MultivariateStudentT",
    "NormalCDF",
    "SignedPower",
    "Spiral",
    "SwissRoll",
    "Task",
    "Transformed",
    "UniformNoise",
]

_nats = CorrelatedGaussian.from_mutual_information
_cube = SignedPower(3.0)

TASKS: dict[str, Task] = {
    "independent": CorrelatedGaussian(20, 0.0),
    # d = 20, the simulation of CLUB: Gaussian, cube of y as in its code, and (W y)^3 as in its text
    "gaussian-2": _nats(20, 2.0),
    "gaussian-4": _nats(20, 4.0),
    "gaussian-6": _nats(20, 6.0),
    "gaussian-8": _nats(20, 8.0),
    "gaussian-10": _nats(20, 10.0),
    "cubic-2": Transformed(_nats(20, 2.0), y_maps=(_cube,)),
    "cubic-4": Transformed(_nats(20, 4.0), y_maps=(_cube,)),
    "cubic-6": Transformed(_nats(20, 6.0), y_maps=(_cube,)),
    "cubic-8": Transformed(_nats(20, 8.0), y_maps=(_cube,)),
    "cubic-10": Transformed(_nats(20, 10.0), y_maps=(_cube,)),
    "cubic-w-2": Transformed(_nats(20, 2.0), y_maps=(Mixing(20), _cube)),
    "cubic-w-4": Transformed(_nats(20, 4.0), y_maps=(Mixing(20), _cube)),
    "cubic-w-6": Transformed(_nats(20, 6.0), y_maps=(Mixing(20), _cube)),
    "cubic-w-8": Transformed(_nats(20, 8.0), y_maps=(Mixing(20), _cube)),
    "cubic-w-10": Transformed(_nats(20, 10.0), y_maps=(Mixing(20), _cube)),
    # x and y of different dimensions, other tails, other supports
    "gaussian-dense": JointGaussian.dense(5, 3, correlation=0.5),
    "gaussian-sparse": JointGaussian.sparse(5, 3, correlation=0.8, pairs=2),
    "student-1": JointStudentT(JointGaussian.dense(3, 2, correlation=0.5), df=1.0),
    "student-3": JointStudentT(JointGaussian.sparse(5, 3, correlation=0.8, pairs=2), df=3.0),
    "student-uncorrelated": JointStudentT(JointGaussian.sparse(3, 2, correlation=0.0), df=1.0),
    "student-asinh": Transformed(
        JointStudentT(JointGaussian.sparse(5, 3, correlation=0.8, pairs=2), df=1.0),
        (Asinh(),),
        (Asinh(),),
    ),
    "uniform-noise": UniformNoise(0.1),
    "uniform-noise-wide": UniformNoise(0.75),
    "half-cube": Transformed(_nats(1, 1.0), (SignedPower(1.5),), (SignedPower(1.5),)),
    "normal-cdf": Transformed(_nats(3, 1.0), (NormalCDF(),), (NormalCDF(),)),
    "spiral": Transformed(
        JointGaussian.sparse(3, 2, correlation=0.8, pairs=2), (Spiral(1.0),), (Spiral(0.5),)
    ),
    "swiss-roll": Transformed(_nats(1, 1.0), (NormalCDF(), SwissRoll())),
    # Several modes
    "mixture-cross": JointGaussianMixture.cross(correlation=0.9),
    "mixture-balls": JointGaussianMixture.balls(
        1, ((2.0, 0.0), (0.0, 2.0), (-2.0, 0.0), (0.0, -2.0)), scale=0.5
    ),
    "galaxy": Transformed(
        JointGaussianMixture.balls(2, ((2.0, 0.0, 1.0), (-2.0, 0.0, -1.0)), scale=0.7),
        (Spiral(0.5),),
    ),
    # Labels
    "table": DiscreteTable(
        ((0.20, 0.05, 0.05), (0.05, 0.10, 0.15), (0.05, 0.05, 0.10), (0.0, 0.1, 0.1))
    ),
    "table-identity": DiscreteTable(((0.5, 0.0, 0.0), (0.0, 0.3, 0.0), (0.0, 0.0, 0.2))),
    "labelled-uniform": LabelledUniform(5),
}
