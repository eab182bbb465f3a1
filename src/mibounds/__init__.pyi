# Every public name and its room, in the order of the flow. `__init__.py` reads this file.
from mibounds.conditionals import (
    AsPublishedGaussian as AsPublishedGaussian,
    Bernoulli as Bernoulli,
    Categorical as Categorical,
    Conditional as Conditional,
    Copula as Copula,
    Flow as Flow,
    FullGaussian as FullGaussian,
    Gaussian as Gaussian,
    GaussianMixture as GaussianMixture,
    LowRankGaussian as LowRankGaussian,
    StudentT as StudentT,
    UnitGaussian as UnitGaussian,
)
from mibounds.critics import (
    BilinearCritic as BilinearCritic,
    ConcatCritic as ConcatCritic,
    Critic as Critic,
    SeparableCritic as SeparableCritic,
)
from mibounds.bounds.from_distributions import (
    ba as ba,
    club as club,
    club_sample as club_sample,
    doe as doe,
    l1out as l1out,
    vub as vub,
)
from mibounds.bounds.from_critics import (
    dv as dv,
    flo as flo,
    infonce as infonce,
    js as js,
    mine as mine,
    nwj as nwj,
    smile as smile,
    tuba as tuba,
)
from mibounds.estimators import (
    BA as BA,
    CLUB as CLUB,
    DV as DV,
    ESTIMATORS as ESTIMATORS,
    FLO as FLO,
    JS as JS,
    MINE as MINE,
    NWJ as NWJ,
    SMILE as SMILE,
    TUBA as TUBA,
    VUB as VUB,
    CLUBSample as CLUBSample,
    ConditionalEstimator as ConditionalEstimator,
    CriticEstimator as CriticEstimator,
    DoE as DoE,
    Estimator as Estimator,
    InfoNCE as InfoNCE,
    L1Out as L1Out,
)
from mibounds.estimators.ratio import (
    Ratio as Ratio,
)
from mibounds.estimators.fitting import (
    fit as fit,
)
from mibounds.estimators.ensembles import (
    fit_many as fit_many,
)
from mibounds.estimators.evaluation import (
    Evaluation as Evaluation,
    evaluate as evaluate,
)
from mibounds.measure.classical import (
    CCA as CCA,
    CLASSICAL as CLASSICAL,
    GCMI as GCMI,
    KDE as KDE,
    KSG as KSG,
    MLMI as MLMI,
    Binning as Binning,
    MixedKSG as MixedKSG,
    PlugIn as PlugIn,
)
from mibounds.measure.methods import (
    METHODS as METHODS,
)
from mibounds.measure.results import (
    Advice as Advice,
    FitRecord as FitRecord,
    HistoryPoint as HistoryPoint,
    MethodResult as MethodResult,
)
from mibounds.measure.estimation import (
    Estimate as Estimate,
    estimate as estimate,
)
from mibounds.measure.tables.matrices import (
    Matrix as Matrix,
    matrix as matrix,
)
from mibounds.measure.tables.rankings import (
    Ranking as Ranking,
    rank as rank,
)
from mibounds.measure.tables.results import (
    RankedColumn as RankedColumn,
)
from mibounds.measure.quantities import (
    Decomposition as Decomposition,
    Quantity as Quantity,
)
from mibounds.measure.decompositions import (
    decompose as decompose,
    interaction as interaction,
    total_correlation as total_correlation,
)
from mibounds.measure.entropies import (
    entropy as entropy,
)
from mibounds.measure.series.results import (
    Lag as Lag,
    Lags as Lags,
    Transfer as Transfer,
)
from mibounds.measure.series.time_series import (
    lags as lags,
)
from mibounds.minimise.health import (
    PenaltyReport as PenaltyReport,
)
from mibounds.minimise.penalty import (
    MIPenalty as MIPenalty,
    PenaltyWarning as PenaltyWarning,
)
from mibounds.minimise.total_correlation import (
    TCPenalty as TCPenalty,
)
from mibounds.tasks import (
    TASKS as TASKS,
    Task as Task,
)

__version__: str
__all__: list[str]
